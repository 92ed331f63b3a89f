// Package pick makes one decision: given a prompt's prefix chains, what workers
// hold and how busy they are, which worker decodes and which one prefills.
//
// It is pure apart from the load it books: time and randomness are arguments.
// Start at [Picker.Pick]; the arithmetic is in cost.go.
package pick
