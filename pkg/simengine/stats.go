package simengine

import (
	"sync"
	"sync/atomic"
)

// Stats is what a worker did since it started.
type Stats struct {
	Worker   string `json:"worker"`
	WorkerID uint64 `json:"worker_id"`
	Rank     uint32 `json:"rank"`
	Role     string `json:"role"`

	Requests    uint64 `json:"requests"`    // generating requests accepted, prefill legs included
	Finished    uint64 `json:"finished"`    // answered to the end
	Aborted     uint64 `json:"aborted"`     // given up because the client left or the worker stopped
	Failed      uint64 `json:"failed"`      // generating requests answered with an error
	Misdirected uint64 `json:"misdirected"` // requests of the other role; served all the same
	Running     int64  `json:"running"`
	Waiting     int64  `json:"waiting"`

	PromptTokens     uint64 `json:"prompt_tokens"`
	PrefilledTokens  uint64 `json:"prefilled_tokens"`  // prompt tokens computed here
	CachedTokens     uint64 `json:"cached_tokens"`     // prompt tokens taken from this worker's cache
	ReceivedTokens   uint64 `json:"received_tokens"`   // prompt tokens fetched from a prefill worker
	GeneratedTokens  uint64 `json:"generated_tokens"`  //
	CachedBlocks     int    `json:"cached_blocks"`     // blocks in the cache now
	BlocksInUse      int    `json:"blocks_in_use"`     // of those, used by requests
	EventsPublished  uint64 `json:"events_published"`  // KV events handed to NATS
	EventsLost       uint64 `json:"events_lost"`       // KV events that could not be handed over
	HandshakePrefill uint64 `json:"handshake_prefill"` // prefill legs answered
	HandshakeDecode  uint64 `json:"handshake_decode"`  // prefill legs asked for and answered well
	PrefillFailures  uint64 `json:"prefill_failures"`  // prefill legs that failed, retry included

	PrefillHeaders    uint64 `json:"prefill_headers"`     // requests that named a prefill worker
	LastPrefillHeader string `json:"last_prefill_header"` // "name: value" of the newest of them
}

type counters struct {
	requests, finished, aborted, failed, misdirected       atomic.Uint64
	promptTokens, prefilledTokens, cachedTokens            atomic.Uint64
	receivedTokens, generatedTokens                        atomic.Uint64
	handshakesPrefill, handshakesDecode, prefillFailures   atomic.Uint64
	prefixQueries, prefixHits, externalQueries, externHits atomic.Uint64
	running, waiting                                       atomic.Int64

	mu             sync.Mutex
	prefillHeaders uint64
	lastHeader     string
}

func (c *counters) sawPrefillHeader(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefillHeaders++
	c.lastHeader = s
}

// Stats returns the figures at this moment.
func (e *Engine) Stats() Stats {
	c := &e.stats
	s := Stats{
		Worker: e.cfg.Name, WorkerID: e.cfg.WorkerID, Rank: e.cfg.Rank, Role: e.cfg.Role.String(),
		Requests: c.requests.Load(), Finished: c.finished.Load(), Aborted: c.aborted.Load(), Failed: c.failed.Load(),
		Misdirected: c.misdirected.Load(), Running: c.running.Load(), Waiting: c.waiting.Load(),
		PromptTokens: c.promptTokens.Load(), PrefilledTokens: c.prefilledTokens.Load(), CachedTokens: c.cachedTokens.Load(),
		ReceivedTokens: c.receivedTokens.Load(), GeneratedTokens: c.generatedTokens.Load(),
		HandshakePrefill: c.handshakesPrefill.Load(), HandshakeDecode: c.handshakesDecode.Load(),
		PrefillFailures: c.prefillFailures.Load(),
	}
	if e.pub != nil {
		s.EventsPublished, s.EventsLost = e.pub.published.Load(), e.pub.lost.Load()
	}
	e.mu.Lock()
	s.CachedBlocks, s.BlocksInUse = len(e.cache.entries), e.cache.pinned()
	e.mu.Unlock()
	c.mu.Lock()
	s.PrefillHeaders, s.LastPrefillHeader = c.prefillHeaders, c.lastHeader
	c.mu.Unlock()
	return s
}
