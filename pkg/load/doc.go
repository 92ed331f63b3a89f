// Package load is the work that this picker has placed on each worker and that
// is not finished yet.
//
// A decision reads and books load under one lock, so that requests that arrive
// together see each other. It keeps no time and starts nothing: whoever holds a
// Reservation ends it. Start at [Table].
package load
