package simengine

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// handle answers one generating request.
func (e *Engine) handle(w http.ResponseWriter, r *http.Request, ep endpoint) {
	arrived := time.Now()
	req, apiErr := e.read(w, r, ep)
	if apiErr != nil {
		e.stats.failed.Add(1)
		apiErr.write(w)
		return
	}
	e.stats.requests.Add(1)
	e.countMisdirected(req)
	w.Header().Set(headerWorker, e.cfg.Name)
	remote, apiErr := e.remotePrefill(r.Context(), r.Header, req)
	if apiErr != nil {
		if r.Context().Err() != nil {
			e.stats.aborted.Add(1)
			return
		}
		e.stats.failed.Add(1)
		apiErr.write(w)
		return
	}
	e.nameWorkers(w.Header(), req, remote)
	if e.generate(r.Context(), req, remote, e.newAnswer(w, req), arrived) == nil {
		return
	}
	e.stats.aborted.Add(1)
	if req.stream {
		panic(http.ErrAbortHandler) // breaks the connection: the client must not take this for the end
	}
	// The client sees this only when it is the worker that stops.
	(&apiError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: "the worker is stopping"}).write(w)
}

func (e *Engine) countMisdirected(req *request) {
	prefillLeg := req.transfer.DoRemoteDecode
	if (e.cfg.Role == fleet.Prefill && !prefillLeg) || (e.cfg.Role == fleet.Decode && prefillLeg) {
		e.stats.misdirected.Add(1)
	}
}

func (e *Engine) nameWorkers(h http.Header, req *request, remote *leg) {
	switch {
	case remote == nil:
		h.Set(headerPrefillWorker, e.cfg.Name)
	case remote.worker != "":
		h.Set(headerPrefillWorker, remote.worker)
	}
	if !req.transfer.DoRemoteDecode {
		h.Set(headerDecodeWorker, e.cfg.Name)
	}
}

// generate computes or fetches the prompt's KV blocks, decodes, and writes the
// answer. It returns an error when the request ended before its answer did.
func (e *Engine) generate(ctx context.Context, req *request, remote *leg, out answer, arrived time.Time) error {
	out.begin()
	job := &job{engine: e, req: req, path: newPath(e.cfg, req)}
	defer job.end()
	prompt := len(req.tokens)
	var cached int
	var err error
	if remote == nil {
		cached, err = job.prefill(ctx)
	} else {
		cached, err = job.receive(ctx, remote)
	}
	if err != nil {
		return err
	}
	e.stats.promptTokens.Add(uint64(prompt))
	var transfer *transferParams
	if req.transfer.DoRemoteDecode {
		transfer = e.offer(req, job.slots())
		e.stats.handshakesPrefill.Add(1)
	}
	e.metrics.ttft.Observe(time.Since(arrived).Seconds())
	count, finish, err := job.decode(ctx, out)
	if err != nil {
		return err
	}
	e.metrics.success.WithLabelValues(finish).Inc()
	job.end()
	e.stats.finished.Add(1) // before the client can see the end and look
	out.end(usage{
		PromptTokens: prompt, CompletionTokens: count, TotalTokens: prompt + count,
		PromptTokensDetails: &promptDetails{CachedTokens: cached},
	}, transfer)
	return nil
}

// path turns a request's tokens into nodes of the cache.
type path struct {
	layout     block.Layout
	seed, wire block.Seed // of the cache's keys and of the announced hashes
}

// newPath tells salted prompts apart in the cache always, in announced hashes
// from 1.4 on (dynamo.md 2.1).
func newPath(cfg Config, req *request) path {
	p := path{layout: block.Layout{Size: cfg.BlockSize}, seed: block.NewSeed("", req.salt)}
	p.wire = p.seed
	if cfg.Generation == dynamo.Gen12 {
		p.wire = block.NewSeed("", "")
	}
	return p
}

// nodes returns the full blocks of tokens from the start of a request.
func (p path) nodes(tokens []uint32) []node {
	hashes := p.layout.AppendHashes(nil, tokens, p.seed)
	chains := block.AppendChains(nil, hashes)
	if p.wire != p.seed {
		hashes = p.layout.AppendHashes(hashes[:0], tokens, p.wire)
	}
	out := make([]node, len(chains))
	for i := range out {
		out[i] = node{chain: chains[i], hash: hashes[i]}
	}
	return out
}

// next returns the node of one more block of tokens after the given path.
func (p path) next(before []node, tokens []uint32) node {
	h := p.layout.AppendHashes(nil, tokens, p.seed)[0]
	n := node{chain: block.Root(h), hash: h}
	if len(before) > 0 {
		n.chain = before[len(before)-1].chain.Next(h)
	}
	if p.wire != p.seed {
		n.hash = p.layout.AppendHashes(nil, tokens, p.wire)[0]
	}
	return n
}

// job is one request's stay in the engine.
type job struct {
	engine *Engine
	req    *request
	path   path
	lease  *lease
	leave  func() // ends the state that the gauges count; nil when in none
}

// enter moves the request to another state: waiting or running.
func (j *job) enter(waiting bool) {
	if j.leave != nil {
		j.leave()
	}
	gauge := &j.engine.stats.running
	if waiting {
		gauge = &j.engine.stats.waiting
	}
	gauge.Add(1)
	j.leave = func() { gauge.Add(-1) }
}

// end gives everything back. Calling it again does nothing.
func (j *job) end() {
	if j.leave != nil {
		j.leave()
		j.leave = nil
	}
	if j.lease != nil {
		j.engine.release(j.lease)
		j.lease = nil
	}
}

// prefill computes the prompt, after the prompts that came before it, and
// returns how many tokens the cache saved.
func (j *job) prefill(ctx context.Context) (cached int, err error) {
	e := j.engine
	j.enter(true)
	if err := e.lane.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer e.lane.Release(1)
	if err := j.admit(ctx); err != nil {
		return 0, err
	}
	j.enter(false)
	cached = j.cachedTokens()
	n := len(j.req.tokens)
	e.stats.prefixQueries.Add(uint64(n))
	e.stats.prefixHits.Add(uint64(cached))
	if err := sleep(ctx, e.cfg.Timing.prefill(n-cached)); err != nil {
		return 0, err
	}
	e.stats.cachedTokens.Add(uint64(cached))
	e.stats.prefilledTokens.Add(uint64(n - cached))
	e.commit(j.lease)
	return cached, nil
}

// receive fetches the prompt's blocks from the worker that computed them and
// returns how many tokens that worker's cache saved.
func (j *job) receive(ctx context.Context, from *leg) (cached int, err error) {
	e := j.engine
	j.enter(true)
	if err := j.admit(ctx); err != nil {
		return 0, err
	}
	n := len(j.req.tokens)
	local := j.cachedTokens()
	e.stats.prefixQueries.Add(uint64(n))
	e.stats.prefixHits.Add(uint64(local))
	e.stats.externalQueries.Add(uint64(n - local))
	cached, uncached := from.cached, max(0, n-from.cached)
	if from.cached < 0 {
		cached, uncached = local, 0
	}
	if err := sleep(ctx, e.cfg.Timing.transfer(n-local, uncached)); err != nil {
		return 0, err
	}
	e.stats.cachedTokens.Add(uint64(local))
	e.stats.externHits.Add(uint64(n - local))
	e.stats.receivedTokens.Add(uint64(n - local))
	e.commit(j.lease)
	j.enter(false)
	return cached, nil
}

// admit waits until the cache has room for the prompt.
func (j *job) admit(ctx context.Context) error {
	nodes := j.path.nodes(j.req.tokens)
	for {
		l, freed := j.engine.acquire(nodes)
		if l != nil {
			j.lease = l
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cachedTokens returns the prompt tokens that need no computation. The last one
// always does (dynamo-live.md section 3).
func (j *job) cachedTokens() int {
	size := j.engine.cfg.BlockSize
	return min(len(j.lease.held), (len(j.req.tokens)-1)/size) * size
}

func (j *job) slots() []int {
	out := make([]int, len(j.lease.held), len(j.lease.held)+1)
	for i, e := range j.lease.held {
		out[i] = e.slot
	}
	return out
}

// decode writes the answer token by token and caches the blocks it fills. It
// returns the number of tokens and why the answer ended.
func (j *job) decode(ctx context.Context, out answer) (count int, finish string, err error) {
	e := j.engine
	words := newWriter(j.req.tokens)
	natural := math.MaxInt
	if !j.req.ignoreEOS {
		natural = words.length
	}
	start := time.Now()
	caching := true
	for finish == "" {
		if err := sleep(ctx, time.Until(start.Add(e.cfg.Timing.decode(count)))); err != nil {
			return count, "", err
		}
		// The newest token's own KV does not exist yet: only what came before it
		// can complete a block.
		caching = caching && j.extend()
		token, text := words.next(), ""
		switch {
		case count >= natural:
			token, finish = tokenEnd, "stop"
		default:
			text = tokenText(token)
			if count+1 == j.req.maxTokens {
				finish = "length"
			}
		}
		j.req.tokens = append(j.req.tokens, token)
		count++
		e.stats.generatedTokens.Add(1)
		if err := out.token(text, finish); err != nil {
			return count, "", err
		}
	}
	return count, finish, nil
}

// extend caches the block that the computed tokens fill, if they fill one more.
// It returns false when there was no room for it.
func (j *job) extend() bool {
	size := j.engine.cfg.BlockSize
	at := len(j.lease.path) * size
	if len(j.req.tokens) < at+size {
		return true
	}
	return j.engine.extend(j.lease, j.path.next(j.lease.path, j.req.tokens[at:at+size]))
}

// sleep waits for d, or less when ctx ends, which is an error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acquire takes a lease, or returns a channel that is closed when trying again
// may help.
func (e *Engine) acquire(nodes []node) (*lease, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, evicted, ok := e.cache.acquire(nodes)
	if !ok {
		return nil, e.freed
	}
	e.pub.add(evicted, nil)
	return l, nil
}

func (e *Engine) commit(l *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pub.add(nil, e.cache.commit(l))
}

func (e *Engine) extend(l *lease, n node) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	came, evicted, ok := e.cache.extend(l, n)
	e.pub.add(evicted, came)
	return ok
}

func (e *Engine) release(l *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache.release(l)
	close(e.freed)
	e.freed = make(chan struct{})
}

// writer makes up an answer: words of letters that depend on the prompt only.
type writer struct {
	state  uint64
	length int // tokens until the answer ends by itself
}

func newWriter(prompt []uint32) *writer {
	seed := block.Layout{Size: len(prompt)}.AppendHashes(nil, prompt, block.NewSeed("", ""))[0]
	w := &writer{state: uint64(seed)}
	w.length = 64 + int(w.random()%64)
	return w
}

func (w *writer) next() uint32 {
	r := w.random() % 32
	if r >= 26 {
		return ' '
	}
	return 'a' + uint32(r)
}

func (w *writer) random() uint64 {
	w.state += 0x9e3779b97f4a7c15
	x := w.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
