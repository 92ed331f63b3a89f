package eventplane

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// publisher says what the announcer took in. It is for one goroutine.
type publisher struct {
	from *announcer
	send func(subject string, data []byte) error
	now  func() time.Time
	log  *slog.Logger

	voices map[string]*voice          // by subject
	open   map[*Announcement]struct{} // placed, and not told to have ended wherever it was told to be
	clock  uint64                     // our time as of the last word, in ms: see word

	replica  string     // subject of our state
	partSize func() int // about how large a part of it may be, in bytes
	spare    []word     // words of the batch before
	body     []byte
	load     dynamo.Load
	id       []byte
	lora     []byte
	chains   []block.Chain
}

// voice is a publisher in Dynamo's sense: its messages count from 0 on one
// subject, so that who listens there sees no gap.
type voice struct{ id, next uint64 }

// maxVoices bounds the subjects that are counted on. One that is forgotten starts
// over under another id, as a new process would.
const maxVoices = 1024

func newPublisher(p *Plane, send func(string, []byte) error) *publisher {
	return &publisher{
		from: p.announce, send: send, now: p.cfg.Now, log: p.cfg.Log,
		voices: map[string]*voice{}, open: map[*Announcement]struct{}{},
		replica: replicaSubject(p.replicaPrefix(), p.announce.router), partSize: func() int { return peerFrame },
	}
}

// catchUp says all that waits.
func (p *publisher) catchUp() {
	a := p.from
	a.mu.Lock()
	words, back := a.words, a.back
	a.words, a.back = p.spare[:0], false
	a.mu.Unlock()
	if back {
		p.beat()
		p.settle()
	}
	for _, w := range words {
		p.say(w)
	}
	clear(words)
	p.spare = words
}

// settle frees what ended while nobody could be told.
func (p *publisher) settle() {
	for an := range p.open {
		if an.over {
			p.finish(an)
		}
	}
}

// end says what waits, that all that is still open has ended, and that nothing
// more will come.
func (p *publisher) end() {
	p.from.mu.Lock()
	p.from.closed = true
	p.from.mu.Unlock()
	p.catchUp()
	for an := range p.open {
		p.finish(an)
	}
	p.bye()
}

// say tells one thing. Words of one request come in order.
func (p *publisher) say(w word) {
	switch w.kind {
	case wordPlaced:
		p.place(w.of)
	case wordPrefilled:
		p.prefilled(w.of)
	case wordFinished:
		w.of.over = true
		p.finish(w.of)
	}
}

// place tells where a request is. Of a pair both workers are told at once, since
// both were picked; Dynamo's routers pick the decode worker when the prompt is
// computed.
func (p *publisher) place(an *Announcement) {
	waited := len(an.what.Chains)
	if an.what.pair() {
		an.told[prefillSide] = p.add(an, an.what.Prefill, p.work(an))
		an.told[decodeSide] = p.add(an, an.what.Decode, dynamo.Added{Sequence: p.sequence(an)})
	} else {
		added := p.work(an)
		added.Sequence = p.sequence(an)
		an.told[decodeSide] = p.add(an, an.what.Decode, added)
	}
	an.freeRoom()
	p.open[an] = struct{}{}
	if waited > 0 {
		p.from.mu.Lock()
		p.from.blocks -= waited
		p.from.mu.Unlock()
	}
}

// work is the prompt as work. Dynamo gives no hint where nothing is to compute.
func (p *publisher) work(an *Announcement) dynamo.Added {
	added := dynamo.Added{TrackPrefill: true}
	if an.what.PrefillTokens > 0 {
		added.Hint.Set, added.Hint.Value.Tokens = true, uint64(an.what.PrefillTokens)
	}
	return added
}

// sequence is what a request takes up on the worker that decodes. Routers count
// the different hashes on a worker, so that prompts which share blocks there count
// them once. That is right where the worker computes the prompt, in its own cache.
// A decode worker gets the blocks of each request sent, and Dynamo's routers draw
// hashes at random there, which are counted each (dynamo.md 5.1). So do we: a
// request must weigh the same whoever placed it. Where the hashes of a prompt are
// not known, their number is what is left to tell.
func (p *publisher) sequence(an *Announcement) dynamo.Optional[[]block.Chain] {
	chains := an.what.Chains
	if an.what.pair() || len(chains) == 0 {
		p.chains = p.chains[:0]
		for range an.what.Blocks {
			p.chains = append(p.chains, block.Chain(rand.Uint64()))
		}
		chains = p.chains
	}
	return dynamo.Optional[[]block.Chain]{Value: chains, Set: true}
}

// add tells that a request is on a worker, and returns the subject that it was told
// on, empty when it was not.
func (p *publisher) add(an *Announcement, k fleet.Key, added dynamo.Added) string {
	subject := p.from.places.subject(k)
	if subject == "" {
		p.noPlace(k)
		return ""
	}
	if !p.publish(subject, an, k, dynamo.AddRequest, added) {
		return ""
	}
	return subject
}

// prefilled tells that a prompt is computed. The prefill worker of a pair has
// nothing more to do for the request then; its decode worker was given no prompt
// to compute.
func (p *publisher) prefilled(an *Announcement) {
	an.prefilled = true
	side := decodeSide
	if an.what.pair() {
		side = prefillSide
	}
	if an.told[side] == "" {
		return
	}
	p.publish(an.told[side], an, an.worker(side), dynamo.MarkPrefillCompleted, dynamo.Added{})
	if side == prefillSide {
		p.free(an, side)
	}
}

// finish tells that a request has ended wherever it was told to be. Where that
// fails, which happens only without a connection, it is told later: a request that
// never ends counts for minutes.
func (p *publisher) finish(an *Announcement) {
	p.free(an, prefillSide)
	p.free(an, decodeSide)
	if an.told != [2]string{} {
		return
	}
	delete(p.open, an)
	p.from.mu.Lock()
	p.from.open--
	p.from.mu.Unlock()
}

func (p *publisher) free(an *Announcement, side int) {
	if an.told[side] != "" && p.publish(an.told[side], an, an.worker(side), dynamo.Free, dynamo.Added{}) {
		an.told[side] = ""
	}
}

func (an *Announcement) worker(side int) fleet.Key {
	if side == prefillSide {
		return an.what.Prefill
	}
	return an.what.Decode
}

// publish sends one message, and says whether NATS took it.
func (p *publisher) publish(subject string, an *Announcement, k fleet.Key, kind dynamo.SequenceKind, added dynamo.Added) bool {
	v := p.voice(subject)
	p.id = append(p.id[:0], an.what.RequestID...)
	p.load = dynamo.Load{Kind: dynamo.LoadSequence, Sequence: dynamo.SequenceEvent{
		RequestID: p.id, WorkerID: k.ID, Rank: k.Rank, Kind: kind, Added: added, RouterID: p.from.router,
	}}
	if an.what.Adapter != "" {
		p.lora = append(p.lora[:0], an.what.Adapter...)
		p.load.Sequence.LoRA = p.lora
	}
	body, err := dynamo.AppendLoad(p.body[:0], dynamo.Envelope{
		PublisherID: v.id, Sequence: v.next, PublishedAt: p.word(),
	}, &p.load)
	p.body = body
	if err != nil { // of a size, or with an id or adapter, that no message can have
		err = nats.ErrMaxPayload
	} else if err = p.send(subject, body); err == nil {
		v.next++
	}
	p.count(kind, err)
	return err == nil
}

func (p *publisher) voice(subject string) *voice {
	v := p.voices[subject]
	if v == nil {
		if len(p.voices) >= maxVoices {
			clear(p.voices)
		}
		v = &voice{id: random53()}
		p.voices[subject] = v
	}
	return v
}

// count counts a message that was sent, or could not be.
func (p *publisher) count(kind dynamo.SequenceKind, err error) {
	a := p.from
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.stats
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		s.TooLarge++
	case err != nil:
		if kind != dynamo.Free || a.closed {
			s.NotConnected++
		}
	case kind == dynamo.AddRequest:
		s.Added++
	case kind == dynamo.MarkPrefillCompleted:
		s.Prefilled++
	case kind == dynamo.Free:
		s.Freed++
	}
}

// noPlace counts a request on a worker whose place is not known, and says so at
// most once a minute.
func (p *publisher) noPlace(k fleet.Key) {
	if a := p.from; a.complain(&a.stats.UnknownPlace, &a.placeSilent, p.now()) {
		p.log.Warn("other routers are not told of requests on a worker that was never heard on the event plane; more within a minute are only counted",
			"worker_id", k.ID, "rank", k.Rank)
	}
}
