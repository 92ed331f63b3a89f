package index

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Writers exclude each other and all readers, and nobody waits for ever, on one
// processor and on many.
func TestLockExcludes(t *testing.T) {
	for _, procs := range []int{1, 2, 8} {
		before := runtime.GOMAXPROCS(procs)
		var l lock
		var wg sync.WaitGroup
		var inside atomic.Int64 // readers; a writer counts as 1000
		value, half := 0, 0
		const writers, readers, rounds = 4, 6, 3000
		for range writers {
			wg.Go(func() {
				for i := range rounds {
					l.Lock()
					if n := inside.Add(1000); n != 1000 {
						t.Errorf("a writer is in beside %d", n-1000)
					}
					value++
					if i%64 == 0 {
						runtime.Gosched() // as if the processor was lost
					}
					half++
					inside.Add(-1000)
					l.Unlock()
				}
			})
		}
		for range readers {
			wg.Go(func() {
				for i := range rounds {
					l.RLock()
					if n := inside.Add(1); n >= 1000 {
						t.Errorf("a reader is in beside a writer: %d", n)
					}
					if i%64 == 0 {
						runtime.Gosched()
					}
					if value != half {
						t.Error("a reader saw a half-done write")
					}
					inside.Add(-1)
					l.RUnlock()
				}
			})
		}
		wg.Wait()
		runtime.GOMAXPROCS(before)
		if value != writers*rounds {
			t.Errorf("%d writes, want %d", value, writers*rounds)
		}
	}
}

// A writer that finds a reader parks and is woken by it; a reader that finds a
// writer parks and is woken too.
func TestLockParks(t *testing.T) {
	var l lock
	l.RLock()
	in := make(chan struct{})
	go func() {
		l.Lock()
		close(in)
		l.Unlock()
	}()
	for l.target.Load() == 0 { // until it parked
		runtime.Gosched()
	}
	select {
	case <-in:
		t.Fatal("a writer is in beside a reader")
	default:
	}
	l.RUnlock()
	<-in

	l.Lock()
	read := make(chan struct{})
	go func() {
		l.RLock()
		close(read)
		l.RUnlock()
	}()
	for l.readers.Load()/lockReader < 2 { // until it came
		runtime.Gosched()
	}
	select {
	case <-read:
		t.Fatal("a reader is in beside a writer")
	default:
	}
	l.Unlock()
	<-read
}
