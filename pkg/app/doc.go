// Package app is the composition root: it builds a picker from its configuration
// and runs all its parts under one errgroup. Nothing but commands and
// whole-system tests imports it. Start at [New].
//
// What a policy decides is a generation (generation.go): the event plane and the
// index (events.go), the tokenizer (tokenizer.go), the picker, the headers.
// [App.Apply] replaces it while requests run (apply.go). Its parts begin and end
// at any time while the picker runs (life.go), and what they count is added up
// (totals.go).
package app
