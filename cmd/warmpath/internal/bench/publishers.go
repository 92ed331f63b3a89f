package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// PublishersConfig says what the process of the publishers does.
type PublishersConfig struct {
	URL        string
	Publishers int
	Array      bool          // an array of events per message, else one event each
	Rate       float64       // blocks stored per second, all together; 0 is as fast as they can
	Stamps     float64       // steps per second that are told when they are sent
	Duration   time.Duration // after the opening
	In         io.Reader     // a line starts what follows the opening, a second one the closing
	Out        io.Writer     // a word per line
}

// word is what the process of the publishers says on its standard output.
type word struct {
	Filled *tally `json:"filled,omitempty"` // all caches are full, and the server has heard it
	Stamp  *stamp `json:"stamp,omitempty"`
	Sent   *tally `json:"sent,omitempty"`   // since Filled; the server has heard it
	Closed *tally `json:"closed,omitempty"` // since Sent; the server has heard it
}

// tally counts what was published.
type tally struct {
	Messages int           `json:"messages"`
	Events   int           `json:"events"`
	Blocks   int           `json:"blocks"` // stored
	Elapsed  time.Duration `json:"elapsed"`
}

// stamp says that a step of a publisher is about to be sent.
type stamp struct {
	Publisher int   `json:"publisher"`
	Prompt    int   `json:"prompt"`
	Half      int   `json:"half"`
	At        int64 `json:"at"` // ns since 1970
}

// publishers are all of them, each with a connection of its own.
type publishers struct {
	PublishersConfig
	all   []*publisher
	mu    sync.Mutex // guards out
	out   *json.Encoder
	count struct{ messages, events, blocks atomic.Int64 }
}

type publisher struct {
	number       int
	conn         *nats.Conn
	form         form
	opening      []step
	round        []step
	sequence, id uint64
}

// Publishers plays workers that publish KV events: it fills their caches, waits
// for a line on In, and publishes for the time given.
func Publishers(ctx context.Context, cfg PublishersConfig) (err error) {
	p := &publishers{PublishersConfig: cfg, out: json.NewEncoder(cfg.Out)}
	defer func() {
		for _, one := range p.all {
			one.conn.Close()
		}
	}()
	for i := range cfg.Publishers {
		one, err := newPublisher(i, cfg)
		if err != nil {
			return err
		}
		p.all = append(p.all, one)
	}
	filled, err := p.together(func(one *publisher) error { return p.fill(ctx, one) })
	if err != nil {
		return err
	}
	if err := p.say(word{Filled: filled}); err != nil {
		return err
	}
	orders := bufio.NewReader(cfg.In)
	if _, err := orders.ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	start := time.Now()
	sent, err := p.together(func(one *publisher) error { return p.run(ctx, one, start) })
	if err != nil {
		return err
	}
	if err := p.say(word{Sent: sent}); err != nil {
		return err
	}
	if _, err := orders.ReadString('\n'); err != nil {
		return nil // nobody asks for a closing
	}
	closed, err := p.together(func(one *publisher) error { return p.finish(ctx, one) })
	if err != nil {
		return err
	}
	return p.say(word{Closed: closed})
}

func newPublisher(i int, cfg PublishersConfig) (*publisher, error) {
	s := newScript(i)
	one := &publisher{number: i, form: newForm(cfg.Array, s), sequence: firstID, id: firstID}
	var err error
	if one.opening, err = s.opening(one.form); err != nil {
		return nil, err
	}
	if one.round, err = s.round(one.form); err != nil {
		return nil, err
	}
	one.conn, err = nats.Connect(cfg.URL, nats.Name(fmt.Sprintf("publisher-%d", i)), nats.Timeout(30*time.Second))
	return one, err
}

// together lets all publishers do something, until the server has heard all of it,
// and counts what they sent.
func (p *publishers) together(do func(*publisher) error) (*tally, error) {
	p.count.messages.Store(0)
	p.count.events.Store(0)
	p.count.blocks.Store(0)
	var wg sync.WaitGroup
	errs := make([]error, len(p.all))
	start := time.Now()
	for i, one := range p.all {
		wg.Go(func() {
			if errs[i] = do(one); errs[i] == nil {
				errs[i] = one.conn.FlushTimeout(time.Minute)
			}
		})
	}
	wg.Wait()
	c := &p.count
	return &tally{int(c.messages.Load()), int(c.events.Load()), int(c.blocks.Load()), time.Since(start)}, errors.Join(errs...)
}

// fillPause is taken between the steps of an opening, per publisher: all together
// are fast enough, and slow enough that nobody drops anything.
const fillPause = 80 * time.Microsecond

func (p *publishers) fill(ctx context.Context, one *publisher) error {
	for i := range one.opening {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.send(one, &one.opening[i]); err != nil {
			return err
		}
		time.Sleep(fillPause * time.Duration(p.Publishers))
	}
	p.count.blocks.Add(openingBlocks)
	one.opening = nil
	return nil
}

// run publishes at an even pace, or without a pause. Who is late catches up, but
// ends after twice the time.
func (p *publishers) run(ctx context.Context, one *publisher, start time.Time) error {
	gap, steps, end := time.Duration(0), math.MaxInt, start.Add(p.Duration)
	if p.Rate > 0 {
		gap = time.Duration(float64(p.Publishers) * halfBlocks / p.Rate * float64(time.Second))
		steps, end = int(p.Duration/gap)+1, end.Add(p.Duration)
	}
	every := p.stampEvery(gap)
	due := start.Add(gap * time.Duration(one.number) / time.Duration(p.Publishers))
	for n := range steps {
		time.Sleep(time.Until(due))
		now := time.Now()
		if ctx.Err() != nil || now.After(end) {
			return ctx.Err()
		}
		due = due.Add(gap)
		st := &one.round[n%len(one.round)]
		if every > 0 && (n+one.number)%every == 0 {
			if err := p.say(word{Stamp: &stamp{one.number, st.prompt, st.half, now.UnixNano()}}); err != nil {
				return err
			}
		}
		if err := p.send(one, st); err != nil {
			return err
		}
		p.count.blocks.Add(halfBlocks)
	}
	return nil
}

// finish publishes a little more, slowly: what was lost before shows when a later
// event arrives.
func (p *publishers) finish(ctx context.Context, one *publisher) error {
	for i := range 5 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.send(one, &one.round[i]); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// stampEvery is how many steps of one publisher go to a stamp; 0 is none.
func (p *publishers) stampEvery(gap time.Duration) int {
	if p.Stamps <= 0 || gap == 0 {
		return 0
	}
	return max(1, int(float64(p.Publishers)/gap.Seconds()/p.Stamps))
}

func (p *publishers) send(one *publisher, st *step) error {
	now := time.Now()
	for i := range st.messages {
		m := &st.messages[i]
		m.stamp(&one.sequence, &one.id, now)
		if err := one.conn.Publish(one.form.subject, m.data); err != nil {
			return err
		}
	}
	p.count.messages.Add(int64(len(st.messages)))
	p.count.events.Add(int64(st.events))
	return nil
}

func (p *publishers) say(w word) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(w)
}
