package eventplane

import (
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// maxLanes bounds the goroutines that take messages in.
const maxLanes = 8

// laneSize is how many messages wait in a lane. All that waits is in the plane's
// queue anyway: lanes need only enough to keep each other from waiting.
const laneSize = 256

// item is one message on its way to a lane, or a barrier.
type item struct {
	msg     *nats.Msg
	seq     uint64    // in its stream; 0 when it came without one
	at      time.Time // when the stream took it in; zero: now
	barrier *barrier
}

// barrier goes through all lanes: when it has passed, so has all that was
// dispatched before.
type barrier struct {
	lanes sync.WaitGroup
	seq   uint64 // of the newest message of the stream that was
}

// settle waits until all that was dispatched is taken in, and returns the sequence
// in its stream of the newest. It must be called only while dispatch runs.
func (p *Plane) settle() uint64 {
	b := &barrier{}
	b.lanes.Add(len(p.lanes))
	p.barriers <- b
	b.lanes.Wait()
	return b.seq
}

// lane takes in the messages of some of the workers, one after the other, so that
// the events of a worker stay in order.
type lane struct {
	plane *Plane
	queue chan item

	// mu is held while an event of one of the lane's workers is decided on and
	// applied. It comes before the plane's lock.
	mu sync.Mutex

	decoded dynamo.DecodeStats // guarded by the plane's lock

	// Only of the lane's goroutine.
	decoder  dynamo.Decoder
	subjects map[string]subject
	now      message // under way
}

func newLanes(p *Plane) []*lane {
	lanes := make([]*lane, min(runtime.GOMAXPROCS(0), maxLanes))
	for i := range lanes {
		lanes[i] = &lane{plane: p, queue: make(chan item, laneSize), subjects: map[string]subject{}}
	}
	return lanes
}

// laneOf is the lane of a worker, with all its ranks: what one of them says may be
// about all.
func (p *Plane) laneOf(worker uint64) *lane {
	// The top bits of the product depend on all of the id.
	return p.lanes[(worker*0x9e3779b97f4a7c15>>32)*uint64(len(p.lanes))>>32]
}

// dispatch spreads messages over the lanes until both inputs are closed and nil,
// and returns when the lanes have taken in all.
func (p *Plane) dispatch(core <-chan *nats.Msg, stream <-chan item) {
	var lanes sync.WaitGroup
	for _, l := range p.lanes {
		lanes.Go(func() {
			for it := range l.queue {
				l.handle(it)
			}
		})
	}
	for core != nil || stream != nil {
		next := core
		if len(stream) > 0 {
			// It waits since before NATS itself had to do instead of the stream: what that
			// brings is newer, and would look like a gap.
			next = nil
		}
		select {
		case m, ok := <-next:
			if !ok {
				core = nil
				continue
			}
			p.route(item{msg: m})
		case it, ok := <-stream:
			if !ok {
				stream = nil
				continue
			}
			p.route(it)
			p.dispatched.Store(it.seq)
		case b := <-p.barriers:
			b.seq = p.dispatched.Load()
			for _, l := range p.lanes {
				l.queue <- item{barrier: b}
			}
		}
	}
	for _, l := range p.lanes {
		close(l.queue)
	}
	lanes.Wait()
}

// route hands a message to its lane, and waits while that has too much to do.
func (p *Plane) route(it item) {
	to := p.lanes[0]
	if worker, ok := dynamo.PeekWorker(it.msg.Data); ok {
		to = p.laneOf(worker)
	}
	to.queue <- it
}

func (l *lane) handle(it item) {
	if it.barrier != nil {
		it.barrier.lanes.Done()
		return
	}
	l.receive(it)
}
