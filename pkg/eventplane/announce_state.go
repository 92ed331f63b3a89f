package eventplane

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

const (
	// beatEvery is the time between two heartbeats: three that are missing mean that
	// a replica is dead.
	beatEvery = time.Second
	// stateEvery is about the time between two states, and so how long what was lost
	// goes uncorrected.
	stateEvery = 5 * time.Second
	// stateSoon bounds the time until the next state when somebody waits for it: a
	// replica that is new, or all after an outage. Not all answer at once.
	stateSoon = 300 * time.Millisecond
)

// beats says when a publisher tells that it is alive, and its state.
type beats struct {
	alive *time.Ticker
	state *time.Timer
	every time.Duration
}

func newBeats(p *Plane) *beats {
	return &beats{alive: time.NewTicker(p.beatEvery), state: time.NewTimer(stateSoon), every: p.stateEvery}
}

func (b *beats) stop() {
	b.alive.Stop()
	b.state.Stop()
}

// again puts the next state off by the usual time, more or less: replicas that
// began together do not stay so.
func (b *beats) again() { b.state.Reset(b.every*9/10 + rand.N(b.every/5+1)) }

// soon lets the next state be told soon.
func (b *beats) soon() { b.state.Reset(rand.N(stateSoon)) }

// hurry lets the publisher tell its state soon.
func (a *announcer) hurry() {
	select {
	case a.hurried <- struct{}{}:
	default: // it will anyway
	}
}

// word is the router's time of the next word about a request: the time of day, as
// in Dynamo, but never before an earlier word, and after every state that was told.
func (p *publisher) word() uint64 {
	p.clock = max(p.clock, p.millis())
	return p.clock
}

func (p *publisher) millis() uint64 { return uint64(max(p.now().UnixMilli(), 1)) }

// beat tells other replicas that this one is alive.
func (p *publisher) beat() {
	p.body = appendReplicaHead(p.body[:0], replicaAlive, p.word(), 0)
	_ = p.send(p.replica, p.body) // without a connection there is nobody to tell
}

// bye tells other replicas that this one has ended.
func (p *publisher) bye() {
	p.body = appendReplicaHead(p.body[:0], replicaGone, p.word(), 0)
	_ = p.send(p.replica, p.body) // they will find out
}

// state tells other replicas all that is open, those requests too that could not be
// told of when they were placed. It is what was said so far, and no more.
func (p *publisher) state() {
	at := max(p.clock, p.millis()-1)
	p.clock = at + 1 // what is said from now on is later
	parts := p.fillParts()
	if len(parts) > load.MaxStateParts {
		p.beat() // a server that takes so little per message; words are all there is
		return
	}
	for i := range parts {
		p.body = parts[i].appendTo(p.body[:0], at, i, len(parts))
		if p.send(p.replica, p.body) != nil {
			return
		}
		p.from.states.Add(1)
	}
}

// fillParts lays out the requests in messages that the server takes. There is one
// at least: that nothing is open is a state, too.
func (p *publisher) fillParts() []statePart {
	limit := p.partSize()
	parts := []statePart{{}}
	numbers := map[fleet.Key]int{}
	add := func(an *Announcement, k fleet.Key, tokens, blocks int, prefilled bool) {
		last := &parts[len(parts)-1]
		if last.n > 0 && last.size()+len(an.what.RequestID)+64 > limit {
			parts = append(parts, statePart{})
			last = &parts[len(parts)-1]
			clear(numbers)
		}
		n, ok := numbers[k]
		if !ok {
			n = len(last.workers)
			numbers[k] = n
			last.workers = append(last.workers, k)
		}
		last.add(an.what.RequestID, n, uint64(max(tokens, 0)), uint64(max(blocks, 0)), prefilled)
	}
	for an := range p.open {
		w := &an.what
		switch {
		case an.over || len(w.RequestID) > load.MaxRequestID:
		case !w.pair():
			add(an, w.Decode, w.PrefillTokens, w.Blocks, an.prefilled)
		default: // the prefill worker is done with it when the prompt is computed
			if !an.prefilled {
				add(an, w.Prefill, w.PrefillTokens, 0, false)
			}
			add(an, w.Decode, 0, w.Blocks, true)
		}
	}
	return parts
}

// replicaSubject is where a router tells other replicas of its state.
func replicaSubject(prefix string, router uint64) string {
	return prefix + ".load." + strconv.FormatUint(router, 10)
}
