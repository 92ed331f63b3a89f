// Package fleet is the picker's view of a pool: its workers, their roles and
// identities, as an immutable [Snapshot] that discovery replaces as a whole.
//
// It never watches anything and never does I/O. Start at [Snapshot].
package fleet
