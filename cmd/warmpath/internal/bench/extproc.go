package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Config says what ExtProc measures.
type Config struct {
	Bodies   []int // body sizes, bytes
	Streams  []int // requests at once
	Workers  []int // pool sizes
	Duration time.Duration
	Rounds   int // per cell, interleaved with the floor; the median counts
	JSON     bool
	Out      io.Writer // the result
	Progress io.Writer // what is going on
}

// Row is one measured cell. The floor is a picker that looks at nothing,
// measured in turn with the picker.
type Row struct {
	BodyBytes       int     `json:"body_bytes"`
	Streams         int     `json:"streams"`
	Workers         int     `json:"workers"`
	P50MS           float64 `json:"p50_ms"`
	P99MS           float64 `json:"p99_ms"`
	RPS             float64 `json:"rps"`
	CPUUSPerRequest float64 `json:"cpu_us_per_request"`
	PeakMB          float64 `json:"peak_mb"`
	FloorCPUUS      float64 `json:"floor_cpu_us_per_request"`
	FloorRatio      float64 `json:"cpu_ratio_to_floor"`
}

// ExtProc measures the ext-proc round trip: request headers and body to the
// decision, prompts as token ids, against an index that holds most of them.
func ExtProc(ctx context.Context, cfg Config) error {
	bus, err := startNATS("")
	if err != nil {
		return err
	}
	defer bus.Shutdown()
	floor, err := startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.stop()
	var rows []Row
	for _, workers := range cfg.Workers {
		for _, size := range cfg.Bodies {
			more, err := measurePool(ctx, cfg, bus.ClientURL(), floor, workers, size)
			if err != nil {
				return fmt.Errorf("%d workers, %d bytes: %w", workers, size, err)
			}
			rows = append(rows, more...)
		}
	}
	return write(cfg, rows)
}

// startNATS starts a server, with JetStream where it has a folder for that.
func startNATS(dir string) (*server.Server, error) {
	bus, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: dir != "", StoreDir: dir,
	})
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	bus.Start()
	if !bus.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("start NATS: not ready after 10 s")
	}
	return bus, nil
}

// measurePool measures one picker with one pool and one body size.
func measurePool(ctx context.Context, cfg Config, natsURL string, floor *process, workers, size int) ([]Row, error) {
	dir, err := os.MkdirTemp("", "warmpath-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	picker, err := startPicker(ctx, dir, natsURL, workers)
	if err != nil {
		return nil, err
	}
	defer picker.stop()
	load := newWorkload(size)
	if err := fill(ctx, picker, natsURL, load, workers); err != nil {
		return nil, err
	}
	var rows []Row
	for _, streams := range cfg.Streams {
		fmt.Fprintf(cfg.Progress, "%d workers, %d byte bodies, %d streams …\n", workers, size, streams)
		row, err := measureCell(ctx, cfg, picker, floor, load, streams)
		if err != nil {
			return nil, err
		}
		row.BodyBytes, row.Streams, row.Workers = size, streams, workers
		rows = append(rows, row)
	}
	return rows, nil
}

// fill lets every conversation be held by one worker, over NATS as in life.
func fill(ctx context.Context, picker *process, natsURL string, load *workload, workers int) error {
	conn, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	defer conn.Close()
	subject := dynamo.EventSubject(dynamo.Gen12, "dynamo", "backend", "generate")
	if err := waitListening(ctx, picker, conn, subject); err != nil {
		return err
	}
	held := map[fleet.Key]map[kvevent.EngineHash]bool{}
	next := make([]uint64, workers)
	entries := 0
	for c := range conversations {
		id := fleet.WorkerID(workerName(c % workers))
		mine := held[fleet.Key{ID: id}]
		if mine == nil {
			mine = map[kvevent.EngineHash]bool{}
			held[fleet.Key{ID: id}] = mine
		}
		for _, ev := range load.events(c, id, next[c%workers]+1) {
			next[c%workers]++
			for _, b := range ev.Blocks {
				if !mine[b.Engine] {
					mine[b.Engine] = true
					entries++
				}
			}
			msg, err := dynamo.AppendMessage(nil, dynamo.Gen12, dynamo.Envelope{PublisherID: id, Sequence: ev.ID - 1, Topic: dynamo.TopicKVEvents}, []kvevent.Event{ev})
			if err != nil {
				return err
			}
			if err := conn.Publish(subject, msg); err != nil {
				return err
			}
		}
	}
	if err := conn.FlushTimeout(time.Minute); err != nil {
		return err
	}
	return picker.waitEntries(ctx, entries)
}

// waitListening waits until the picker hears a subject: NATS keeps nothing for
// those who subscribe later. The events it sends are of a worker that no pool has
// and change nothing.
func waitListening(ctx context.Context, picker *process, conn *nats.Conn, subject string) error {
	const stranger = 1
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for id := uint64(1); ; id++ {
		probe := kvevent.Event{WorkerID: stranger, ID: id, Kind: kvevent.Removed}
		msg, err := dynamo.AppendMessage(nil, dynamo.Gen12, dynamo.Envelope{PublisherID: stranger, Sequence: id - 1, Topic: dynamo.TopicKVEvents}, []kvevent.Event{probe})
		if err != nil {
			return err
		}
		if err := conn.Publish(subject, msg); err != nil {
			return err
		}
		if n, err := picker.metric(ctx, `warmpath_event_messages_total{component="backend"}`); err == nil && n > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the picker does not listen on %s: %w", subject, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// measureCell measures picker and floor in turn and returns the medians.
func measureCell(ctx context.Context, cfg Config, picker, floor *process, load *workload, streams int) (Row, error) {
	var rows, floors []Row
	for range cfg.Rounds {
		row, err := measureOnce(ctx, picker, load, streams, cfg.Duration)
		if err != nil {
			return Row{}, err
		}
		rows = append(rows, row)
		if row, err = measureOnce(ctx, floor, load, streams, cfg.Duration); err != nil {
			return Row{}, fmt.Errorf("floor: %w", err)
		}
		floors = append(floors, row)
	}
	median := func(rows []Row, f func(*Row) float64) float64 {
		values := make([]float64, len(rows))
		for i := range rows {
			values[i] = f(&rows[i])
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	out := Row{
		P50MS:           median(rows, func(r *Row) float64 { return r.P50MS }),
		P99MS:           median(rows, func(r *Row) float64 { return r.P99MS }),
		RPS:             median(rows, func(r *Row) float64 { return r.RPS }),
		CPUUSPerRequest: median(rows, func(r *Row) float64 { return r.CPUUSPerRequest }),
		PeakMB:          median(rows, func(r *Row) float64 { return r.PeakMB }),
		FloorCPUUS:      median(floors, func(r *Row) float64 { return r.CPUUSPerRequest }),
	}
	out.FloorRatio = out.CPUUSPerRequest / out.FloorCPUUS
	return out, nil
}

func measureOnce(ctx context.Context, p *process, load *workload, streams int, d time.Duration) (Row, error) {
	c, err := dial(p.address)
	if err != nil {
		return Row{}, err
	}
	defer c.close()
	if _, err := c.run(ctx, load, streams, d/5); err != nil { // warm up
		return Row{}, err
	}
	if err := p.resetPeak(); err != nil {
		return Row{}, err
	}
	before, err := p.cpu()
	if err != nil {
		return Row{}, err
	}
	m, err := c.run(ctx, load, streams, d)
	if err != nil {
		return Row{}, err
	}
	after, err := p.cpu()
	if err != nil {
		return Row{}, err
	}
	peak, err := p.peakMB()
	if err != nil {
		return Row{}, err
	}
	n := float64(len(m.latencies))
	return Row{
		P50MS:           ms(m.percentile(0.50)),
		P99MS:           ms(m.percentile(0.99)),
		RPS:             n / m.elapsed.Seconds(),
		CPUUSPerRequest: float64((after - before).Microseconds()) / n,
		PeakMB:          peak,
	}, nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func write(cfg Config, rows []Row) error {
	if cfg.JSON {
		return json.NewEncoder(cfg.Out).Encode(map[string]any{"rows": rows})
	}
	t := tabwriter.NewWriter(cfg.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "body\tstreams\tworkers\tp50 ms\tp99 ms\trequests/s\tCPU us/request\tpeak MB\tfloor CPU us\tratio\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%d\t%d\t%d\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t\n",
			r.BodyBytes, r.Streams, r.Workers, r.P50MS, r.P99MS, r.RPS, r.CPUUSPerRequest, r.PeakMB, r.FloorCPUUS, r.FloorRatio)
	}
	return t.Flush()
}
