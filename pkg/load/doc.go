// Package load is the work on each worker that is not finished yet: what this
// picker has placed there, and what engines and other routers say.
//
// A decision reads and books load under one lock, so that requests that arrive
// together see each other. It keeps no time and starts nothing: whoever holds a
// Reservation ends it. Start at [Table] for this picker's own requests, and at
// [Engines] for what others say, which feeds a table. What decisions see of both
// together is in [Figures].
package load
