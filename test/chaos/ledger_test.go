package chaos

import "github.com/warmpath/warmpath/pkg/kvevent/dynamo"

// account is what a rank's counters say, and what the ledger says they must.
type account struct {
	Last     uint64 // id of the newest event
	Events   uint64 // taken in
	Missed   uint64 // known to be lost
	Gaps     uint64 // runs of those
	Restarts uint64
	Skipped  uint64 // that came and were not taken in, for whatever reason
}

// moment is how far a rank has come.
type moment struct{ restarts, last uint64 }

// reaches says whether a rank has come as far as to another moment.
func (m moment) reaches(other moment) bool {
	return m.restarts > other.restarts || m.restarts == other.restarts && m.last >= other.last
}

// books is the running sum of a rank's messages.
type books struct {
	account
	published uint64 // events
	process   int    // that was heard last
	heard     bool
	pending   uint64 // lost since the last message that was heard
	unnoticed uint64 // lost at the end of a process, or before the first message that was heard: ids do not tell how many

	// tainted: something was lost and what the plane holds of the rank may be
	// other than the truth, be it more or less.
	tainted bool
	noticed []moment // the first event after each gap, of the current step
}

// post moves what a worker published into the books of its ranks. Its last
// messages must have gone through: then what has not is lost. It returns how many
// events were lost.
func (w *worker) post(gone *[]uint64) (lost uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.ledger {
		n := uint64(len(m.events))
		m.rank.books.published += n
		if !w.witness.sees(m) {
			lost += n
			*gone = append(*gone, m.serial)
			w.miss(m)
			continue
		}
		if m.rank.books.hear(m) && w.release.generation == dynamo.Gen12 {
			w.taint()
		}
		w.trust(m)
	}
	w.ledger = nil
	return lost
}

// miss notes a message that was lost. In it may be the word that other ranks hold
// nothing.
func (w *worker) miss(m *message) {
	m.rank.books.pending += uint64(len(m.events))
	m.rank.books.tainted = true
	for _, s := range m.events {
		if s.clearsAll {
			w.taint()
		}
	}
}

// taint says of all ranks that what is known of them may not be true.
func (w *worker) taint() {
	for _, r := range w.ranks {
		r.books.tainted = true
	}
}

// hear notes a message that went through, and says whether it shows a loss that may
// have been of the word that no rank of the worker holds anything. The loss before it
// shows in the ids when it is of the same process. Else a restart shows, all that was
// known is dropped, and of what was lost only the start of the new process shows.
func (b *books) hear(m *message) (gap bool) {
	n := uint64(len(m.events))
	missed := m.first - 1
	switch {
	case !b.heard: // it may have spoken before anybody listened
		missed = 0
		b.tainted = m.first > 1 // less than the truth is known
	case m.process == b.process:
		missed = b.pending
	default:
		b.Restarts++
		b.tainted = m.first > 1
	}
	b.unnoticed += b.pending - missed
	if missed > 0 {
		b.Gaps++
		b.Missed += missed
		b.noticed = append(b.noticed, moment{b.Restarts, m.first})
	}
	b.heard, b.process, b.pending = true, m.process, 0
	b.Events += n
	b.Last = m.first + n - 1
	return missed > 0
}

// trust notes the word that nothing is held: all are agreed again.
func (w *worker) trust(m *message) {
	for _, s := range m.events {
		if s.clears {
			m.rank.books.tainted = false
		}
		if s.clearsAll {
			for _, r := range w.ranks {
				r.books.tainted = false
			}
		}
	}
}
