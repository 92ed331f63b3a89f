package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// EventsConfig says how Events measures.
type EventsConfig struct {
	Publishers int
	Rounds     int           // the median counts
	Duration   time.Duration // of one measurement
	Rate       float64       // blocks per second while latency is measured, and first of the search
	Payloads   []string
	JetStream  bool // events go through a stream
	Output     Output
	Out        io.Writer
	Progress   io.Writer
}

// Payloads of messages: an array of events (Dynamo 1.4+), or one event (1.2, 1.3).
const (
	ArrayPayload = "array"
	MapPayload   = "map"
)

const (
	// stampsPerSecond of all publishers, to measure latency by.
	stampsPerSecond = 200
	// What still waits at the end is a backlog that grows if it takes longer than
	// hiccup, or than this part of the time of the measurement on top.
	growth = 0.05
	hiccup = 50 * time.Millisecond
	// precision ends the search for the highest rate.
	precision = 1.1
)

// Events measures the event plane end to end: workers that publish in one process,
// a NATS server in another, plane and index in this one.
func Events(ctx context.Context, cfg EventsConfig) error {
	bus, err := start(ctx, "bench", "nats-server", "--jetstream="+strconv.FormatBool(cfg.JetStream))
	if err != nil {
		return err
	}
	defer bus.stop()
	var rows []CaseRow
	for _, payload := range cfg.Payloads {
		b := &eventBench{EventsConfig: cfg, bus: bus, array: payload == ArrayPayload, from: cfg.Rate}
		for _, measure := range []func(context.Context) ([]CaseRow, error){b.latency, b.sustained, b.flood} {
			more, err := rounds(ctx, cfg.Rounds, func() ([]CaseRow, error) { return measure(ctx) })
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
	}
	return writeRows(cfg.Out, cfg.Output, eventColumns, rows)
}

// eventBench measures one form of messages.
type eventBench struct {
	EventsConfig
	bus   *process
	array bool
	from  float64 // where the search begins
}

// latency measures publish to visible at a moderate rate.
func (b *eventBench) latency(ctx context.Context) ([]CaseRow, error) {
	r, err := b.once(ctx, b.Rate, stampsPerSecond)
	if err != nil {
		return nil, err
	}
	if why := r.loss(); why != "" {
		return nil, fmt.Errorf("at %.0f blocks/s: %s; --rate may be lower", b.Rate, why)
	}
	row := b.row("events-latency", r)
	row.MaxUS = us(r.latencies[len(r.latencies)-1])
	return []CaseRow{row}, nil
}

// sustained searches the highest rate without loss and without a growing backlog.
func (b *eventBench) sustained(ctx context.Context) ([]CaseRow, error) {
	best, err := search(b.from, func(rate float64) (*published, bool, error) {
		var r *published
		// A second chance: others use the machine too.
		for range 2 {
			var err error
			if r, err = b.once(ctx, rate, 0); err != nil {
				return nil, false, err
			}
			why := r.fault()
			if why == "" {
				return r, true, nil
			}
			fmt.Fprintf(b.Progress, "  not %.2f M blocks/s: %s\n", rate/1e6, why)
		}
		return r, false, nil
	})
	if err != nil {
		return nil, err
	}
	b.from = best.speed() / 2
	return []CaseRow{b.row("events-sustained", best)}, nil
}

// flood lets the publishers go as fast as they can. What is lost then must be
// known.
func (b *eventBench) flood(ctx context.Context) ([]CaseRow, error) {
	r, err := b.once(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	return []CaseRow{b.row("events-flood", r)}, nil
}

func (b *eventBench) row(name string, r *published) CaseRow {
	if !b.array {
		name += "-map"
	}
	if b.JetStream {
		name += "-jetstream"
	}
	seconds := r.took.Seconds()
	row := CaseRow{
		Name: name, Workers: b.Publishers, Holders: 1, Entries: r.entries, Cores: runtime.GOMAXPROCS(0),
		BlocksPerS: r.speed(), MessagesPerS: float64(r.sent.Messages) / r.sent.Elapsed.Seconds(),
		CPUUSPerBlock: us(r.cpuPlane) / float64(r.blocks),
		Dropped:       float64(r.heard.dropped), Missed: float64(r.heard.missed),
		CPUPlane: r.cpuPlane.Seconds() / seconds, CPUServer: r.cpuServer.Seconds() / seconds, CPUPublishers: r.cpuPublishers.Seconds() / seconds,
	}
	r.latencies.into(&row)
	fmt.Fprintf(b.Progress, "  %s: %.2f M blocks/s", name, row.BlocksPerS/1e6)
	if len(r.latencies) > 0 {
		fmt.Fprintf(b.Progress, ", p50 %.0f us, p99 %.0f us", row.P50US, row.P99US)
	}
	fmt.Fprintln(b.Progress)
	return row
}

// search finds the highest rate that works, to precision: doubling, then halving
// what is between.
func search[T any](from float64, try func(rate float64) (T, bool, error)) (best T, err error) {
	low, high := 0.0, math.Inf(1)
	for rate := from; high/low > precision || low == 0; {
		got, ok, err := try(rate)
		switch {
		case err != nil:
			return best, err
		case ok:
			low, best = rate, got
		default:
			high = rate
		}
		switch {
		case low == 0 && rate < from/10:
			return best, fmt.Errorf("not even %.0f blocks/s work", rate)
		case low == 0:
			rate = high / 2
		case math.IsInf(high, 1):
			rate = low * 2
		default:
			rate = math.Sqrt(low * high)
		}
	}
	return best, nil
}

// published is what became of one measurement.
type published struct {
	sent      tally
	heard     heard         // since the opening
	blocks    uint64        // stored in the index since then
	took      time.Duration // from the start until the last one arrived
	late      time.Duration // that was after the server had heard it
	planned   time.Duration // time of publishing
	latencies latencies
	entries   int

	cpuPlane, cpuServer, cpuPublishers time.Duration
}

// speed is how many blocks a second arrived.
func (r *published) speed() float64 { return float64(r.blocks) / r.took.Seconds() }

// slack is what may wait at the end.
func (r *published) slack() time.Duration {
	return hiccup + time.Duration(growth*float64(r.planned))
}

// fault says why a rate does not count, or nothing.
func (r *published) fault() string {
	switch {
	case r.sent.Elapsed > r.planned+r.slack():
		return fmt.Sprintf("publishers and server were %v behind", (r.sent.Elapsed - r.planned).Round(time.Millisecond))
	case r.late > r.slack():
		return fmt.Sprintf("plane and index were %v behind", r.late.Round(time.Millisecond))
	}
	return r.loss()
}

// loss says what did not arrive as it should, or nothing.
func (r *published) loss() string {
	switch {
	case r.heard.dropped+r.heard.missed > 0:
		return fmt.Sprintf("%d messages dropped, %d events missed", r.heard.dropped, r.heard.missed)
	case r.heard.trouble > 0:
		return fmt.Sprintf("%d events were not as they should be", r.heard.trouble)
	case r.blocks != uint64(r.sent.Blocks):
		return fmt.Sprintf("%d of %d blocks arrived", r.blocks, r.sent.Blocks)
	}
	return ""
}

// once measures with a plane and publishers of its own.
func (b *eventBench) once(ctx context.Context, rate, stamps float64) (_ *published, err error) {
	fmt.Fprintf(b.Progress, "%d publishers, arrays %v, %s …\n", b.Publishers, b.array, rateText(rate))
	l, err := listen(ctx, b.bus.nats, b.JetStream)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	crowd, err := b.publishers(ctx, rate, stamps)
	if err != nil {
		return nil, err
	}
	defer crowd.end()
	filled, err := crowd.until(nil)
	if err != nil {
		return nil, err
	}
	if _, err := l.settle(ctx, uint64(filled.Blocks)); err != nil {
		return nil, err
	}
	before := l.heard()
	if before.blocks != uint64(filled.Blocks) || before.dropped+before.missed+before.trouble > 0 {
		return nil, fmt.Errorf("only %d of %d blocks arrived before it began: %+v", before.blocks, filled.Blocks, before)
	}
	runtime.GC()
	seen, err := b.newWatch(l)
	if err != nil {
		return nil, err
	}
	return b.measure(ctx, l, crowd, before, seen)
}

// measure lets the publishers start and waits until all they say has arrived.
func (b *eventBench) measure(ctx context.Context, l *listener, crowd *crowd, before heard, seen *watch) (*published, error) {
	cpuPlane := cpuTime()
	cpuServer, err1 := b.bus.cpu()
	cpuPublishers, err2 := crowd.cpu()
	start := time.Now()
	if err := errors.Join(err1, err2, crowd.begin()); err != nil {
		return nil, err
	}
	sent, err := crowd.until(func(s *stamp) error { return seen.wait(ctx, s) })
	if err != nil {
		return nil, err
	}
	flushed := time.Now()
	last, err := l.settle(ctx, before.blocks+uint64(sent.Blocks))
	if err != nil {
		return nil, err
	}
	r := &published{
		sent: *sent, heard: l.heard(), took: last.Sub(start), late: max(0, last.Sub(flushed)),
		planned: b.Duration, latencies: seen.all, entries: l.index.Stats().Entries,
		cpuPlane: cpuTime() - cpuPlane,
	}
	r.blocks = r.heard.blocks - before.blocks
	r.cpuServer, err1 = b.bus.cpu()
	r.cpuPublishers, err2 = crowd.cpu()
	r.cpuServer -= cpuServer
	r.cpuPublishers -= cpuPublishers
	if err := errors.Join(err1, err2); err != nil || r.blocks == uint64(sent.Blocks) {
		return r, err
	}
	return r, r.account(ctx, l, crowd, before)
}

// account finds out what was lost. Every event must have been taken in, or be
// known to be missing.
func (r *published) account(ctx context.Context, l *listener, crowd *crowd, before heard) error {
	err := poll(ctx, 10*time.Second, func() (bool, error) { return l.plane.Stats().Connected, nil })
	if err != nil {
		return fmt.Errorf("the plane does not come back: %w", err)
	}
	if err := crowd.begin(); err != nil {
		return err
	}
	closed, err := crowd.until(nil)
	if err != nil {
		return err
	}
	sent := uint64(r.sent.Events + closed.Events)
	err = poll(ctx, 10*time.Second, func() (bool, error) {
		r.heard = l.heard()
		return r.heard.events-before.events+r.heard.missed == sent, nil
	})
	if err != nil {
		return fmt.Errorf("of %d events %d arrived and %d are known to be missing: %w", sent, r.heard.events-before.events, r.heard.missed, err)
	}
	return nil
}

func rateText(rate float64) string {
	if rate == 0 {
		return "as fast as they can"
	}
	return fmt.Sprintf("%.2f M blocks/s", rate/1e6)
}

// watch measures from the sending of a step until a lookup finds it.
type watch struct {
	index   *index.Index
	scripts []*script
	slots   []index.Slot
	match   index.Match
	all     latencies
}

func (b *eventBench) newWatch(l *listener) (*watch, error) {
	w := &watch{index: l.index}
	for i := range b.Publishers {
		s := newScript(i)
		slot, known := l.index.Lookup(fleet.Key{ID: s.worker})
		if !known {
			return nil, fmt.Errorf("publisher %d is not in the index", i)
		}
		w.scripts, w.slots = append(w.scripts, s), append(w.slots, slot)
	}
	return w, nil
}

// wait looks a step up until it is there.
func (w *watch) wait(ctx context.Context, s *stamp) error {
	chains := w.scripts[s.Publisher].chains(s.Prompt, s.Half)
	err := poll(ctx, 10*time.Second, func() (bool, error) {
		w.index.Match(chains, &w.match)
		return w.match.Depth(w.slots[s.Publisher]).Device == len(chains), nil
	})
	if err != nil {
		return fmt.Errorf("publisher %d, prompt %d: not visible: %w", s.Publisher, s.Prompt, err)
	}
	w.all = append(w.all, time.Duration(time.Now().UnixNano()-s.At))
	return nil
}

// crowd is the process of the publishers.
type crowd struct {
	process
	words *json.Decoder
	start io.WriteCloser
}

func (b *eventBench) publishers(ctx context.Context, rate, stamps float64) (*crowd, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	float := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	c := &crowd{process: process{cmd: exec.CommandContext(ctx, self, "bench", "publishers", "--url", b.bus.nats,
		"--publishers", strconv.Itoa(b.Publishers), "--array="+strconv.FormatBool(b.array),
		"--rate", float(rate), "--stamps", float(stamps), "--duration", b.Duration.String())}}
	c.cmd.Stderr = &c.stderr
	c.cmd.WaitDelay = 5 * time.Second
	out, err1 := c.cmd.StdoutPipe()
	in, err2 := c.cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	c.words, c.start = json.NewDecoder(out), in
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the publishers: %w", err)
	}
	return c, nil
}

// begin lets the publishers go on with what comes next.
func (c *crowd) begin() error {
	_, err := io.WriteString(c.start, "\n")
	return err
}

// until hears the publishers until they have filled their caches, or sent all.
func (c *crowd) until(stamped func(*stamp) error) (*tally, error) {
	for {
		var w word
		if err := c.words.Decode(&w); err != nil {
			return nil, fmt.Errorf("the publishers: %w: %s", err, c.stderr.String())
		}
		switch {
		case w.Filled != nil:
			return w.Filled, nil
		case w.Sent != nil:
			return w.Sent, nil
		case w.Closed != nil:
			return w.Closed, nil
		case w.Stamp != nil && stamped != nil:
			if err := stamped(w.Stamp); err != nil {
				return nil, err
			}
		}
	}
}

// end waits for the end of the process, which without a start comes at once.
func (c *crowd) end() {
	_ = c.start.Close()
	_ = c.cmd.Wait() // what it had to say is heard
}
