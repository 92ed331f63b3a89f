// Package index is the prefix index: which workers hold which prompt prefixes,
// per storage tier.
//
// It is fed with kvevent.Events and answers, for one prompt, how many blocks
// every worker holds consecutively from its start. It knows nothing of
// transports, requests or load, and does no I/O of its own. Start at
// [Index.Apply] and [Index.Match]; [Speculation] holds what decisions expect
// before events confirm it, and all that is known where there are no events.
//
// Rules: reference dynamo.md sections 1.4 and 2.4.
//
// # How it is built
//
// Blocks live in cells of an arena (arena.go) and form runs (runs.go): blocks in
// a row that the same workers hold. A chain stands for the whole prompt up to it,
// so one comparison with a run's last chain tells that all of the run is in a
// prompt, and a lookup takes a step per run, not per block. What follows a run is
// another, found by a hint or by its first chain (heads.go).
//
// Sets of workers are interned (holders.go), so that a lookup does nothing where
// the set stays the same. A worker's place in them is a column; clearing a worker
// gives it another, and the old one is swept out by later writes (sweep.go).
//
// What engine hashes stand for is in a table per worker (table.go), and how many
// copies an engine has of those that it stored again in another, which is empty
// where workers count copies themselves (copies.go). Cells, runs, sets and tables
// hold no pointers: the garbage collector skips them.
//
// All that grows asks a budget first (budget.go), which keeps the index within a
// bound of bytes. Where something does not fit, the deepest blocks of the worker
// that holds most go (evict.go), or what came is refused.
//
// A Speculation is a tree of runs of its own, with a time per run and worker
// (speculation_trie.go), which goes by the order in which they expire
// (speculation_order.go). Beside events it also counts the requests that are yet to
// bring a run (speculation_guess.go).
package index
