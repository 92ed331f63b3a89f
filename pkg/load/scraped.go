package load

import "time"

// Scraped is what an engine's metrics say of one worker (engines.md 2). Figures that
// they do not have are below 0.
type Scraped struct {
	At       time.Time
	Waiting  int     // requests in the engine's queue
	Running  int     // requests that it computes
	KVUse    float64 // share of its KV blocks that are in use, 0 to 1
	KVBlocks int     // KV blocks that it has
	Block    int     // tokens in one of them

	// LoRA adapters that it has loaded, and those that requests wait for; nil when it
	// does not say. MaxAdapters is how many it can have.
	Adapters, WaitingAdapters []string
	MaxAdapters               int
}
