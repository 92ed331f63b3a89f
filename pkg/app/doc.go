// Package app is the composition root: it builds a picker from its configuration
// and runs all its parts under one errgroup. Nothing but commands and
// whole-system tests imports it. Start at [New].
package app
