package gateway

import (
	"io"
	"sync"
)

// bodyQueue is a body on its way to the worker: an [io.ReadCloser] whose writer
// never blocks. It must not: the goroutine that fills it also reads the picker's
// replies, among them the reply to a worker that answered without reading.
type bodyQueue struct {
	mu     sync.Mutex
	wake   sync.Cond
	chunks [][]byte
	end    error // what Read returns after the last chunk; nil while open
}

func newBodyQueue() *bodyQueue {
	q := &bodyQueue{}
	q.wake.L = &q.mu
	return q
}

// push appends a chunk, which the queue owns from now on.
func (q *bodyQueue) push(chunk []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil && len(chunk) > 0 {
		q.chunks = append(q.chunks, chunk)
		q.wake.Signal()
	}
}

// finish ends the body after what was pushed. Only the first end counts.
func (q *bodyQueue) finish(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil {
		q.end = end
		q.wake.Broadcast()
	}
}

// Read blocks until there is a chunk or the end.
func (q *bodyQueue) Read(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 && q.end == nil {
		q.wake.Wait()
	}
	if len(q.chunks) == 0 {
		return 0, q.end
	}
	n := copy(p, q.chunks[0])
	if q.chunks[0] = q.chunks[0][n:]; len(q.chunks[0]) == 0 {
		q.chunks = q.chunks[1:]
	}
	return n, nil
}

// Close drops what is left and ends the body.
func (q *bodyQueue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.chunks = nil
	if q.end == nil {
		q.end = io.ErrClosedPipe
	}
	q.wake.Broadcast()
	return nil
}

// mailbox carries the picker's messages to the request's loop. Its writer never
// blocks, so that the picker can always send: otherwise gateway and picker could
// each wait for the other to read.
type mailbox[T any] struct {
	ready chan struct{} // holds one token when there is something to take

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

// put appends an item.
func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take returns and removes all items.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
