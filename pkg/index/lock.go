package index

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// lock is a reader/writer lock for short sections. It is phase-fair: a reader
// waits for at most one writer, however many queue, and a writer for the readers
// that were there when it came. Who waits looks again for about as long as a
// section takes, since parking a goroutine takes longer than that, and parks when
// the other side seems to have lost its processor.
//
// The zero value is unlocked.
type lock struct {
	writers sync.Mutex
	phase   uint64        // flips from writer to writer; guarded by writers
	gates   [2]sync.Mutex // held by a writer of that phase while it is in

	_ [64]byte // readers and writers count on lines of their own
	// readers counts readers that came, in steps of lockReader, beside the mark of
	// the writer that is in.
	readers atomic.Uint64
	_       [56]byte
	left    atomic.Uint64 // readers that went, in the same steps
	// target is what left must become for a parked writer, plus one; 0: none parked.
	target atomic.Uint64
	_      [48]byte
	gone   chan struct{} // the reader that target was for went; made by the first to park
}

const (
	lockPhase  = 1
	lockWriter = 2
	lockMark   = lockPhase | lockWriter
	lockReader = 4

	// lockSpins is how often who waits looks before it parks, lockYields how often
	// it lets other goroutines run meanwhile.
	lockSpins  = 1 << 14
	lockYields = 1 << 11
)

func (l *lock) RLock() {
	if mark := l.readers.Add(lockReader) & lockMark; mark != 0 {
		l.await(mark)
	}
}

// await returns when the writer with a mark has left. Another may be in by then:
// that one waits for this reader, which came before it.
func (l *lock) await(mark uint64) {
	for spin := 1; spin < lockSpins; spin++ {
		if l.readers.Load()&lockMark != mark {
			return
		}
		if spin%lockYields == 0 {
			runtime.Gosched()
		}
	}
	for l.readers.Load()&lockMark == mark {
		gate := &l.gates[mark&lockPhase]
		gate.Lock()
		gate.Unlock() //nolint:staticcheck // waiting is all that is wanted
	}
}

func (l *lock) RUnlock() {
	left := l.left.Add(lockReader)
	if target := l.target.Load(); target == left+1 && l.target.CompareAndSwap(target, 0) {
		l.gone <- struct{}{}
	}
}

func (l *lock) Lock() {
	l.writers.Lock()
	l.phase ^= lockPhase
	l.gates[l.phase].Lock()
	before := l.readers.Add(l.phase|lockWriter) &^ lockMark
	for spin := 1; l.left.Load() != before; spin++ {
		if spin%lockYields == 0 {
			runtime.Gosched()
		}
		if spin == lockSpins {
			l.park(before)
			return
		}
	}
}

// park waits until all readers before a count went. The last of them either sees
// the target and tells, or went before it was set.
func (l *lock) park(before uint64) {
	if l.gone == nil {
		l.gone = make(chan struct{}, 1)
	}
	l.target.Store(before + 1)
	if l.left.Load() == before && l.target.CompareAndSwap(before+1, 0) {
		return
	}
	<-l.gone
}

func (l *lock) Unlock() {
	// Only the writer that is in sets these bits, so a subtraction clears them.
	l.readers.Add(-(l.phase | lockWriter))
	l.gates[l.phase].Unlock()
	l.writers.Unlock()
}
