package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// PickConfig says how Pick measures.
type PickConfig struct {
	Rounds   int           // the median counts
	Duration time.Duration // of the measurement of throughput
	Picks    int           // timed one by one
	Output   Output
	Out      io.Writer
	Progress io.Writer
}

// PickRow is one case.
type PickRow struct {
	Case          string  `json:"case"`
	Model         string  `json:"model"`
	Workers       int     `json:"workers"`
	USPerPick     float64 `json:"us_per_pick"` // median
	P99US         float64 `json:"p99_us"`
	CPUUSPerPick  float64 `json:"cpu_us_per_pick"` // and of its release, of the whole process; holds on a busy machine too
	AllocsPerPick float64 `json:"allocs_per_pick"`
	Scaling       float64 `json:"scaling"` // throughput of two goroutines over that of one
}

func (r *PickRow) figures() []*float64 {
	return []*float64{&r.USPerPick, &r.P99US, &r.CPUUSPerPick, &r.AllocsPerPick, &r.Scaling}
}

// pickCase is a pool and a kind of prompt.
type pickCase struct {
	name    string
	roles   func(i int) fleet.Role
	workers int
	blocks  int // of a prompt that an eighth of the workers hold in part
	bar     float64
	allocs  float64
}

func aggregated(int) fleet.Role { return fleet.Aggregated }

// halves are prefill and decode workers in turn.
func halves(i int) fleet.Role { return fleet.Prefill + fleet.Role(i%2) }

// pickCases have bars beside Dynamo's selector alone, on the same kind of machine:
// 0.38, 2.3 and 39 us (peers.md section E). One allocation is the decision's own.
var pickCases = []pickCase{
	{"pick", aggregated, 8, 1, 0.5, 1},
	{"pick", aggregated, 64, 1, 2, 1},
	{"pick", aggregated, 1000, 1, 30, 1},
	{"pair", halves, 128, 1, 5, 1},
	{"pick-128-blocks", aggregated, 8, 128, 0, 0},
	{"pick-128-blocks", aggregated, 64, 128, 0, 0},
	{"pick-128-blocks", aggregated, 1000, 128, 0, 0},
	{"pair-128-blocks", halves, 128, 128, 0, 0},
}

// Pick measures decisions: the whole of [pick.Picker.Pick], from a request to a
// decision whose load is booked. In the cases with a bar the prompt is one block, so
// that looking it up takes next to nothing, as with a selector that is given its
// scores; in the others it is 128 blocks, looked up and counted among those in use.
func Pick(ctx context.Context, cfg PickConfig) error {
	var rounds [][]PickRow
	for round := range cfg.Rounds {
		fmt.Fprintf(cfg.Progress, "round %d of %d\n", round+1, cfg.Rounds)
		var rows []PickRow
		for _, c := range pickCases {
			for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
				if err := ctx.Err(); err != nil {
					return err
				}
				row, err := c.measure(&cfg, m)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				rows = append(rows, row)
			}
		}
		rounds = append(rounds, rows)
	}
	rows := slices.Clone(rounds[0])
	for i := range rows {
		for f, figure := range rows[i].figures() {
			var values []float64
			for _, r := range rounds {
				values = append(values, *r[i].figures()[f])
			}
			slices.Sort(values)
			*figure = values[len(values)/2]
		}
	}
	return writeRows(cfg.Out, cfg.Output, pickColumns, rows)
}

var pickColumns = []column[PickRow]{
	{title: "case", left: true, text: func(r *PickRow) string { return r.Case }},
	{title: "model", left: true, text: func(r *PickRow) string { return r.Model }},
	{title: "workers", text: func(r *PickRow) string { return strconv.Itoa(r.Workers) }},
	number("p50 us", 1, 2, func(r *PickRow) float64 { return r.USPerPick }),
	number("p99 us", 1, 2, func(r *PickRow) float64 { return r.P99US }),
	number("CPU us", 1, 2, func(r *PickRow) float64 { return r.CPUUSPerPick }),
	number("allocations", 1, 2, func(r *PickRow) float64 { return r.AllocsPerPick }),
	number("scaling", 1, 2, func(r *PickRow) float64 { return r.Scaling }),
	{title: "bar", text: pickBar},
}

// pickBar says what a row must reach, and whether it does.
func pickBar(r *PickRow) string {
	at := slices.IndexFunc(pickCases, func(c pickCase) bool { return c.name == r.Case && c.workers == r.Workers })
	if at < 0 || pickCases[at].bar == 0 {
		return "-"
	}
	const scaling = 1.7
	bar := pickCases[at].bar
	text := fmt.Sprintf("p50 %g us, p99 %g us, %gx", bar, 3*bar, scaling)
	var missed []string
	if r.USPerPick > bar {
		missed = append(missed, "p50")
	}
	if r.P99US > 3*bar {
		missed = append(missed, "p99")
	}
	if r.AllocsPerPick > pickCases[at].allocs+0.01 {
		missed = append(missed, "allocations")
	}
	if r.Scaling < scaling {
		missed = append(missed, "scaling")
	}
	if len(missed) > 0 {
		return text + fmt.Sprintf(": MISSED %v", missed)
	}
	return text
}

// measure measures a case.
func (c *pickCase) measure(cfg *PickConfig, m pick.Model) (PickRow, error) {
	row := PickRow{Case: c.name, Model: m.String(), Workers: c.workers}
	p, err := c.picker(m)
	if err != nil {
		return row, err
	}
	requests := c.requests()
	one := newChooser(p, requests, 1)
	if err := one.warm(); err != nil {
		return row, err
	}
	defer one.end()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := make(latencies, 0, cfg.Picks)
	for range cfg.Picks {
		took, err := one.pick()
		if err != nil {
			return row, err
		}
		all = append(all, took)
	}
	runtime.ReadMemStats(&after)
	row.AllocsPerPick = float64(after.Mallocs-before.Mallocs) / float64(cfg.Picks)
	slices.Sort(all)
	row.USPerPick, row.P99US = us(all[len(all)/2]), us(all[len(all)*99/100])

	cpu := cpuTime()
	alone, err := throughput(cfg.Duration, one)
	if err != nil {
		return row, err
	}
	row.CPUUSPerPick = us(cpuTime()-cpu) / (alone * cfg.Duration.Seconds())
	two := newChooser(p, requests, 2)
	defer two.end()
	if err := two.warm(); err != nil {
		return row, err
	}
	both, err := throughput(cfg.Duration, one, two)
	row.Scaling = both / alone
	return row, err
}

// picker is a picker over the pool of a case, whose first prompt an eighth of the
// workers hold, to different depths.
func (c *pickCase) picker(m pick.Model) (*pick.Picker, error) {
	x := index.New()
	p := pick.New(x, index.NewSpeculation(0), load.NewTable(), 16)
	o := pick.DefaultOptions()
	o.Model = m
	p.SetOptions(o)
	var pool []fleet.Worker
	hashes, _ := c.prompt(0)
	for i := range c.workers {
		w := fleet.Worker{
			Key: fleet.Key{ID: uint64(i + 1)}, Name: "worker-" + strconv.Itoa(i), Role: c.roles(i),
			Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000),
		}
		pool = append(pool, w)
		if i%8 != 0 {
			continue
		}
		ev := kvevent.Event{WorkerID: w.ID, Kind: kvevent.Stored}
		for _, h := range hashes[:1+i%c.blocks] {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(h), Hash: h})
		}
		if err := x.Apply(&ev); err != nil {
			return nil, err
		}
	}
	s, err := fleet.NewSnapshot(pool)
	if err != nil {
		return nil, err
	}
	return p, p.SetFleet(s)
}

// prompt is one of the prompts of a case: they share their first quarter.
func (c *pickCase) prompt(n int) ([]block.Hash, []block.Chain) {
	hashes := make([]block.Hash, c.blocks)
	for i := range hashes {
		hashes[i] = block.Hash(i + 1)
		if i > 0 && i >= c.blocks/4 {
			hashes[i] += block.Hash(n) << 20
		}
	}
	return hashes, block.AppendChains(nil, hashes)
}

// requests are the requests of a case, for all choosers to read.
func (c *pickCase) requests() []pick.Request {
	all := make([]pick.Request, 64)
	for i := range all {
		_, chains := c.prompt(i)
		all[i] = pick.Request{Tokens: 2050, Chains: chains}
	}
	return all
}

// openRequests is how many requests a chooser keeps on the workers.
const openRequests = 256

// chooser makes decisions, one after the other.
type chooser struct {
	picker   *pick.Picker
	requests []pick.Request
	scratch  pick.Scratch
	random   func(int) int
	open     [openRequests]*load.Reservation
	n        int
	now      time.Time
}

func newChooser(p *pick.Picker, requests []pick.Request, seed uint64) *chooser {
	return &chooser{picker: p, requests: requests, random: rand.New(rand.NewPCG(seed, 0)).IntN, now: time.Unix(1, 0)}
}

// pick makes one decision and says how long that took. Then the oldest request ends,
// which is not timed.
func (c *chooser) pick() (time.Duration, error) {
	c.now = c.now.Add(time.Millisecond)
	at := c.n % openRequests
	if r := c.open[at]; r != nil {
		r.PrefillDone(c.now)
		r.Release()
		c.open[at] = nil
	}
	req := &c.requests[c.n%len(c.requests)]
	start := time.Now()
	d, err := c.picker.Pick(req, c.now, c.random, &c.scratch)
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	if d.Reservation == nil {
		return 0, errors.New("a decision has no reservation")
	}
	c.open[at] = d.Reservation
	c.n++
	return took, nil
}

// warm fills the workers.
func (c *chooser) warm() error {
	for range 2 * openRequests {
		if _, err := c.pick(); err != nil {
			return err
		}
	}
	return nil
}

func (c *chooser) end() {
	for _, r := range c.open {
		if r != nil {
			r.Release()
		}
	}
}

// throughput is how many decisions choosers make per second, at once.
func throughput(d time.Duration, all ...*chooser) (float64, error) {
	var wg sync.WaitGroup
	errs, counts := make([]error, len(all)), make([]int, len(all))
	start := time.Now()
	for i, c := range all {
		wg.Go(func() {
			for n := 0; ; n++ {
				if n%64 == 0 && time.Since(start) >= d {
					counts[i] = n
					return
				}
				if _, errs[i] = c.pick(); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / time.Since(start).Seconds(), errors.Join(errs...)
}
