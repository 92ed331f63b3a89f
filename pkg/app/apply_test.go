package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const heldBy12 = `warmpath_worker_blocks{rank="0",tier="device",worker_id="12"}`

// TestApplyKeeps: each change does what it says, and leaves alone what it does not
// concern.
func TestApplyKeeps(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	type policy = v1alpha1.RoutingPolicySpec
	for name, tc := range map[string]struct {
		change              func(*policy)
		events, tok, picker bool // go on
	}{
		"engine metrics": {func(p *policy) { p.EngineMetrics.Enabled = new(false) }, true, true, false},
		"nothing":        {func(*policy) {}, true, true, true},
		"roles":          {func(p *policy) { p.Roles.Prefill = []string{"pre"} }, true, true, false},
		"handoff":        {func(p *policy) { p.Handoff = v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffDynamo} }, true, true, false},
		"adapters":       {func(p *policy) { p.Adapters = []string{"a"} }, true, true, false},
		"rewrites": {func(p *policy) {
			p.ModelRewrites = []v1alpha1.ModelRewriteRule{{Targets: []v1alpha1.ModelRewriteTarget{{ModelRewrite: "a"}}}}
		}, true, true, false},
		"cache salt":      {func(p *policy) { p.CacheSalt = v1alpha1.CacheSaltIgnore }, true, true, false},
		"cost":            {func(p *policy) { p.Cost.PrefillLoadScale = new(2.0) }, true, true, false},
		"disaggregation":  {func(p *policy) { p.Disaggregation.Mode = "Never" }, true, true, false},
		"guesses":         {func(p *policy) { p.EventPlane.SpeculationTTL = &v1alpha1.Duration{} }, true, true, false},
		"time to warm up": {func(p *policy) { p.EventPlane.WarmUp.Timeout = &v1alpha1.Duration{} }, true, true, false},
		"tokenizer":       {func(p *policy) { p.Tokenizer.Engine.Breaker.Failures++ }, true, false, false},
		"model": {func(p *policy) {
			p.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: dir}
			p.Tokenizer.InProcess.Parity.Policy = v1alpha1.ParityOff
			p.Tokenizer.InProcess.Default()
		}, true, false, false},
		"block size":   {func(p *policy) { p.BlockSize = 8 }, true, false, false},
		"eagle":        {func(p *policy) { p.Eagle = true }, true, false, false},
		"replica sync": {func(p *policy) { p.EventPlane.ReplicaSync = new(true) }, false, true, false},
		"namespace":    {func(p *policy) { p.EventPlane.NATS.Namespace = "other" }, false, true, false},
		"recovery":     {func(p *policy) { p.EventPlane.Recovery.Disabled = true }, false, true, false},
		"no events":    {func(p *policy) { p.EventPlane.Disabled = true }, false, true, false},
		"load only":    {func(p *policy) { p.Cost = loadOnly() }, false, true, false},
		"approximate":  {func(p *policy) { p.Cost.UseKVEvents = new(false) }, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ns := startNATS(t, 0)
			r := start(t, heardFrom(ns), prefillA+prefillB+decodeA)
			r.waitReady(t)
			r.waitSubscribed(t, ns)
			ids, body := tokens(1, 12)
			publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids))
			r.waitMetric(t, heldBy12, 3)
			old := r.current.Load()

			r.apply(t, tc.change)
			now := r.current.Load()
			if got := now.events == old.events; got != tc.events {
				t.Errorf("events go on: %v, want %v", got, tc.events)
			}
			if got := now.tokenizer == old.tokenizer; got != tc.tok {
				t.Errorf("the tokenizer goes on: %v, want %v", got, tc.tok)
			}
			if got := now.picker == old.picker; got != tc.picker {
				t.Errorf("the picker goes on: %v, want %v", got, tc.picker)
			}
			if status, text := r.get(t, "/readyz"); status != http.StatusOK {
				t.Errorf("/readyz: %d %q", status, text)
			}
			if tc.events {
				if got := r.metric(t, heldBy12); got != 3 {
					t.Errorf("worker 12 holds %v blocks, want 3", got)
				}
			}
			if r.ask(t, completions, body) == nil {
				t.Error("a request is refused")
			}
			for _, p := range old.parts() {
				if slices.Contains(now.parts(), p) {
					continue
				}
				select {
				case <-p.done:
				case <-time.After(deadline):
					t.Error("a part that nobody needs goes on")
				}
			}
			r.wantIdle(t)
		})
	}
}

// loadOnly is what routes by load alone, as Dynamo's preset does.
func loadOnly() v1alpha1.CostSpec {
	return v1alpha1.CostSpec{Model: v1alpha1.ModelDynamo, OverlapScoreCredit: new(0.0)}
}

// TestLoadOnlyHearsNoEvents: where nothing that a worker holds would count, the
// picker does not even subscribe to KV events. It goes on to hear figures of load.
func TestLoadOnlyHearsNoEvents(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, heardFrom(ns), prefillA+prefillB+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	with := ns.NumSubscriptions()
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Cost = loadOnly() })
	r.waitReady(t)
	r.eventually(t, "the event plane is connected", r.current.Load().events.plane.Connected)
	r.eventually(t, "fewer subscriptions than with KV events, but some", func() bool {
		n := ns.NumSubscriptions() // until the old plane has ended, those of both
		return n > 0 && n < with
	})
	if hears(r.current.Load().spec) {
		t.Error("KV events are heard")
	}
}

// TestApplyTakesEffect: what the policy says is what the next request gets.
func TestApplyTakesEffect(t *testing.T) {
	r := start(t, noText+noEvents, prefillA+decodeA)
	r.waitReady(t)
	_, body := tokens(1, 8)
	if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.1:8000" {
		t.Errorf("before: %v", set)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.Handoff = v1alpha1.HandoffSpec{Headers: []v1alpha1.HandoffHeader{{Name: "x-mine", Value: v1alpha1.PrefillEndpoint}}}
	})
	if set := r.ask(t, completions, body); set["x-mine"] != "10.0.1.1:8000" || set["x-prefiller-host-port"] != "" {
		t.Errorf("after: %v", set)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Handoff = v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffNone} })
	if r.log.count("no handoff header names the one that was picked") != 1 {
		t.Errorf("nobody says that the headers do not fit the pool:\n%s", r.log)
	}
	// Changes of the pool reach the new generation.
	writeWorkers(t, r.dir, prefillB+decodeB)
	r.eventually(t, "the new worker is picked", func() bool {
		return r.ask(t, completions, body)["x-gateway-destination-endpoint"] == "10.0.2.2:8000"
	})
}

// TestApplyNewServer: requests are routed by the old events until the new ones are
// warm, and by the new ones then.
func TestApplyNewServer(t *testing.T) {
	one, two := startNATS(t, 0), startNATS(t, 0)
	workers := prefillA + prefillB + decodeA
	r := start(t, noText+heardFrom(one), workers)
	r.waitReady(t)
	r.waitSubscribed(t, one)
	ids, body := tokens(1, 12)
	publish(t, one, dynamo.Gen14, "prefill", stored(11, 1, ids))
	r.waitMetric(t, `warmpath_worker_blocks{rank="0",tier="device",worker_id="11"}`, 3)

	other := start(t, noText+heardFrom(two), workers) // tells the new event plane
	other.waitReady(t)
	other.waitSubscribed(t, two)
	publish(t, two, dynamo.Gen14, "prefill", stored(12, 1, ids))
	other.waitMetric(t, heldBy12, 3)

	if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.1:8000" {
		t.Errorf("before: picked %v", set)
	}
	old := r.current.Load()
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.EventPlane.NATS.URL = two.ClientURL()
		p.EventPlane.WarmUp.Timeout = &v1alpha1.Duration{Duration: time.Hour}
	})
	if got := r.metric(t, heldBy12); got != 3 {
		t.Errorf("in use with %v blocks of worker 12, want 3", got)
	}
	if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" {
		t.Errorf("after: picked %v", set)
	}
	<-old.events.done
	r.eventually(t, "nobody is connected to the old server", func() bool { return connections(t, one) == 0 })
	more, _ := tokens(100, 8)
	publish(t, two, dynamo.Gen14, "prefill", stored(12, 2, more))
	r.waitMetric(t, heldBy12, 5)
}

// silentWorker is a worker that is asked what it holds, and never says a word.
func silentWorker(t *testing.T) (line string, asked func() bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, done := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(done)
		var all []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
			got <- struct{}{}
		}
		for _, c := range all {
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	line = fmt.Sprintf("- {name: silent, address: 10.0.1.9, ports: [8000], labels: {DYN_COMPONENT: prefill}, workerID: \"39\", recoveryEndpoints: [\"%s/1f/worker_kv_indexer_query_dp0\"]}\n", l.Addr())
	return line, func() bool {
		select {
		case <-got:
			return true
		default:
			return false
		}
	}
}

// TestApplyServesMeanwhile: while a new event plane warms up, requests are routed by
// the old one and changes of the pool reach both; the end of the context ends the
// attempt, and nothing of it is left.
func TestApplyServesMeanwhile(t *testing.T) {
	one, two := startNATS(t, 0), startNATS(t, 0)
	silent, asked := silentWorker(t)
	r := start(t, noText+"eventPlane: {recovery: {disabled: true}, nats: {url: \""+one.ClientURL()+"\"}}", prefillA+prefillB+decodeA+silent)
	r.waitReady(t)
	r.waitSubscribed(t, one)
	if r.recovery.client != nil {
		t.Error("a port for answers is open that nobody needs")
	}
	ids, body := tokens(1, 12)
	publish(t, one, dynamo.Gen14, "prefill", stored(12, 1, ids))
	r.waitMetric(t, heldBy12, 3)
	old := r.current.Load()

	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	next := r.changed(func(p *v1alpha1.RoutingPolicySpec) {
		p.EventPlane.NATS.URL, p.EventPlane.Recovery.Disabled = two.ClientURL(), false
		p.EventPlane.WarmUp.Timeout = &v1alpha1.Duration{Duration: time.Hour}
	})
	go func() { result <- r.Apply(ctx, next) }()
	r.eventually(t, "the new event plane asks the worker", asked)
	for range 5 {
		if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" {
			t.Errorf("meanwhile: picked %v, not the holder", set)
		}
	}
	if status, text := r.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("meanwhile: /readyz %d %q", status, text)
	}
	writeWorkers(t, r.dir, prefillB+decodeB+silent)
	r.eventually(t, "both generations have the new pool", func() bool {
		r.pooling.Lock()
		defer r.pooling.Unlock()
		for _, g := range r.generations {
			if _, ok := g.picker.Fleet().Index(fleet.Key{ID: 22}); !ok {
				return false
			}
		}
		return len(r.generations) == 2
	})
	select {
	case err := <-result:
		t.Fatalf("Apply did not wait: %v", err)
	default:
	}
	stop()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
	if r.current.Load() != old || r.alive() != 1 {
		t.Errorf("something is left of the attempt: %d generations", r.alive())
	}
	r.eventually(t, "its connection is closed", func() bool { return connections(t, two) == 0 })
	if set := r.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" || set["x-gateway-destination-endpoint"] != "10.0.2.2:8000" {
		t.Errorf("afterwards: picked %v", set)
	}
}

// TestApplyWithoutServer: the policy is what its author wants, even if NATS is not
// there yet. It is used when the time to wait is over, and stays ready.
func TestApplyWithoutServer(t *testing.T) {
	one, port := startNATS(t, 0), testport.Free(t)
	r := start(t, noText+heardFrom(one), prefillA+decodeA)
	r.waitReady(t)
	r.grace = 50 * time.Millisecond
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.NATS.URL = fmt.Sprintf("nats://127.0.0.1:%d", port) })
	if status, text := r.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %q", status, text)
	}
	r.eventually(t, "it says that the server cannot be reached", func() bool { return r.Observe().Events.LastError != "" })
	if o := r.Observe(); o.Events.Connected || o.Events.NoServer || o.Events.Disabled {
		t.Errorf("observed %+v", o.Events)
	}
	two := startNATS(t, port)
	r.waitSubscribed(t, two)
	ids, _ := tokens(1, 8)
	publish(t, two, dynamo.Gen14, "prefill", stored(11, 1, ids))
	r.waitMetric(t, "warmpath_index_entries", 2)
	if status, text := r.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("a server that comes late takes readiness away: %d %q", status, text)
	}
}

// TestApplyFails: a spec that cannot be built, or whose event plane fails at once,
// changes nothing.
func TestApplyFails(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, noText+heardFrom(ns), prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	old := r.current.Load()
	missing := filepath.Join(t.TempDir(), "token")
	for name, tc := range map[string]struct {
		change func(*v1alpha1.RoutingPolicySpec)
		want   string
	}{
		"a secret that is missing": {func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.NATS.TokenFile = missing }, missing},
		"an address that is none":  {func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.NATS.URL = "nats://127.0.0.1:port" }, "eventplane"},
		"a time zone that is none": {func(p *v1alpha1.RoutingPolicySpec) {
			p.Tokenizer.Disabled = false
			p.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: "/none"}
			p.Tokenizer.InProcess.ChatTemplate.TimeZone = "Nowhere/Land"
		}, "Nowhere/Land"},
	} {
		err := r.Apply(t.Context(), r.changed(tc.change))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Apply returned %v, want an error with %q", name, err, tc.want)
		}
		if r.current.Load() != old || r.alive() != 1 {
			t.Errorf("%s: something of it is in use", name)
		}
	}
	if _, body := tokens(1, 8); r.ask(t, completions, body) == nil {
		t.Error("a request is refused")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r.applying <- struct{}{} // somebody else applies
	if err := r.Apply(ctx, old.spec); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
	<-r.applying
}

// TestApplyNeedsRun: before Run and after it there is nothing to apply to.
func TestApplyNeedsRun(t *testing.T) {
	a, dir, log := build(t, noText+noEvents, aggregated)
	adapters := a.current.Load().spec.DeepCopy()
	adapters.BlockSize, adapters.EventPlane.Disabled, adapters.EventPlane.NATS.URL = 8, false, "nats://127.0.0.1:1"
	if err := a.Apply(t.Context(), adapters); !errors.Is(err, errNotRunning) {
		t.Errorf("before Run: %v", err)
	}
	r := run(t, a, dir, log)
	r.waitReady(t)
	r.shutdown(t)
	if err := a.Apply(t.Context(), adapters); !errors.Is(err, errNotRunning) {
		t.Errorf("after Run: %v", err)
	}
}

// TestApplyFirstPolicy: a picker without a server waits for a policy that names one.
// As long as no pool is known, which comes after the policy, nothing is gained by
// waiting for what workers tell: readiness does.
func TestApplyFirstPolicy(t *testing.T) {
	ns := startNATS(t, 0)
	silent, _ := silentWorker(t)
	dir, config := files(t, noText+noEvents, "")
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spec.EventPlane.Disabled = false
	log := &logBuffer{}
	a, err := New(cfg, textLog(log))
	if err != nil {
		t.Fatal(err)
	}
	file, publish := a.source, make(chan struct{})
	a.source = sourceFunc(func(ctx context.Context) error { // as a cluster: first the policy, then the pool
		select {
		case <-publish:
			return file.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	r := run(t, a, dir, log)
	r.get(t, "/healthz") // it runs
	if o := r.Observe(); !o.Events.NoServer || o.Events.Disabled || o.Events.Connected {
		t.Errorf("observed %+v", o.Events)
	}
	writeWorkers(t, dir, prefillA+decodeA+silent)
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.EventPlane.NATS.URL = ns.ClientURL()
		p.EventPlane.WarmUp.Timeout = &v1alpha1.Duration{Duration: time.Hour}
	})
	r.eventually(t, "the new server is heard, and workers are waited for", func() bool {
		o := r.Observe()
		return !o.Events.NoServer && o.Events.Connected && o.Events.Warming != ""
	})
	close(publish)
	r.eventually(t, "readiness waits for the worker", func() bool {
		_, text := r.get(t, "/readyz")
		return text == "not ready:\nevent plane: asking workers what they hold: 1 of 1 are left\n"
	})
}

type sourceFunc func(context.Context) error

func (f sourceFunc) Run(ctx context.Context) error { return f(ctx) }

// TestApplyModel: a new tokenizer is used when its files are loaded, and stopped
// when nobody needs it any more.
func TestApplyModel(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	before := goleak.IgnoreCurrent()
	r := start(t, noText+noEvents, aggregated)
	r.waitReady(t)
	if r.current.Load().tokenizer != nil {
		t.Fatal("a tokenizer that is turned off")
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.Tokenizer.Disabled = false
		p.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: dir}
		p.Tokenizer.InProcess.Parity.Policy = v1alpha1.ParityOff
		p.Tokenizer.InProcess.Default()
	})
	r.ask(t, completions, `{"model":"m","prompt":"hello"}`) // the first one after
	if got := r.metric(t, promptsFrom("in_process")); got != 1 {
		t.Errorf("%v prompts in process, want 1\n%s", got, r.log)
	}
	loads := r.metric(t, `warmpath_model_loads_total{result="ok"}`)
	tokenizer := r.current.Load().tokenizer
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Tokenizer.InProcess.MemoBytes /= 2 })
	<-tokenizer.done
	if got := r.metric(t, `warmpath_model_loads_total{result="ok"}`); got < loads+1 {
		t.Errorf("the files were loaded %v times, after %v", got, loads)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Tokenizer = v1alpha1.TokenizerSpec{Disabled: true} })
	r.ask(t, completions, `{"model":"m","prompt":"hello"}`)
	if got := r.metric(t, promptsFrom("unknown")); got != 1 {
		t.Errorf("%v unknown prompts, want 1", got)
	}
	r.shutdown(t)
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestApplyCountsOn: no counter ever goes back, whatever is replaced.
func TestApplyCountsOn(t *testing.T) {
	one, two := startNATS(t, 0), startNATS(t, 0)
	r := start(t, noText+heardFrom(one), prefillA+prefillB+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, one)
	last := r.counters(t)
	check := func(when string) {
		t.Helper()
		now := r.counters(t)
		for name, v := range last {
			if strings.Contains(name, `worker_id="77"`) {
				continue // a worker that no pool has is not remembered
			}
			if got, ok := now[name]; !ok || got < v {
				t.Errorf("%s: %s went from %v to %v (%v)", when, name, v, got, ok)
			}
		}
		last = now
	}
	const events = `warmpath_worker_events_total{rank="0",worker_id="12"}`
	sent := 0
	for i, ns := range []interface{ ClientURL() string }{two, one, two} {
		ids, body := tokens(uint32(100*i+1), 8)
		server := one
		if r.current.Load().spec.EventPlane.NATS.URL == two.ClientURL() {
			server = two
		}
		for id := range 3 {
			publish(t, server, dynamo.Gen14, "prefill", stored(12, uint64(id+1), ids))
			sent++
		}
		publish(t, server, dynamo.Gen14, "prefill", stored(77, 1, ids)) // a stranger
		r.eventually(t, "events are taken in", func() bool { return r.EventsReceived() == uint64(sent+i+1) })
		r.ask(t, completions, body)
		check("before")
		var wg sync.WaitGroup
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.NATS.URL = ns.ClientURL() })
		})
		for open := true; open; {
			select {
			case <-done:
				open = false
			default:
			}
			check("meanwhile")
		}
		wg.Wait()
		r.eventually(t, "the old generation is gone", func() bool { return r.alive() == 1 })
		check("afterwards")
	}
	if got := r.metric(t, events); got != float64(sent) {
		t.Errorf("%v events of worker 12 are counted, want %d", got, sent)
	}
	if got := r.Observe(); got.StrangerEvents != 3 || got.Events.Received != uint64(sent+3) {
		t.Errorf("observed %d events of strangers of %d, want 3 of %d", got.StrangerEvents, got.Events.Received, sent+3)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.Disabled = true })
	check("without events")
}

// TestLoadGoesOn: requests of an older generation count as load for the next one,
// and are taken off once, also when their worker left the pool and came back.
func TestLoadGoesOn(t *testing.T) {
	r := start(t, noText+noEvents, decodeA+decodeB)
	r.waitReady(t)
	c := r.call(t)
	_, body := tokens(1, 400)
	first := c.begin(completions)
	busy := first.routed(body)["x-gateway-destination-endpoint"]
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Adapters = []string{"a"} })
	_, body = tokens(2, 400) // of which the busy worker holds nothing
	for range 8 {
		q := c.begin(completions)
		if got := q.routed(body)["x-gateway-destination-endpoint"]; got == busy {
			t.Errorf("picked %s, which is busy with a request of the generation before", got)
		}
		q.finish()
	}
	late := c.begin(completions) // waits for its body
	r.eventually(t, "the request has begun", func() bool { return r.metric(t, "warmpath_streams") == 2 })
	writeWorkers(t, r.dir, "")
	r.eventually(t, "the pool is empty", func() bool { return len(r.fleet().Workers) == 0 })
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Adapters = nil })
	writeWorkers(t, r.dir, decodeA+decodeB)
	r.eventually(t, "the pool is back", func() bool { return len(r.fleet().Workers) == 2 })
	if got := late.routed(body)["x-gateway-destination-endpoint"]; got == busy {
		t.Errorf("picked %s, which still is busy", got)
	}
	late.finish()
	first.finish()
	r.wantIdle(t)
}

// TestApplyUnderLoad: no request and no reservation is lost, whatever changes how
// often, from how many sides. Nothing of what was replaced is left.
func TestApplyUnderLoad(t *testing.T) {
	one, two := startNATS(t, 0), startNATS(t, 0)
	r := start(t, noText+heardFrom(one), prefillA+prefillB+decodeA+decodeB)
	r.waitReady(t)
	stop := make(chan struct{})
	var asking, applying sync.WaitGroup
	c := r.call(t)
	for n := range 4 {
		asking.Go(func() {
			for i := uint32(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, body := tokens(uint32(n)+i, 16)
				q := c.begin(completions)
				if set := q.routed(body); !strings.HasPrefix(set["x-gateway-destination-endpoint"], "10.0.2.") {
					t.Errorf("routed %v", set)
				}
				q.finish()
			}
		})
	}
	change := []func(*v1alpha1.RoutingPolicySpec){
		func(p *v1alpha1.RoutingPolicySpec) { p.Handoff = v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffDynamo} },
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.NATS.URL = two.ClientURL() },
		func(p *v1alpha1.RoutingPolicySpec) { p.BlockSize = 8 },
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.ReplicaSync = new(true) },
		func(p *v1alpha1.RoutingPolicySpec) { p.Adapters = []string{"m"} },
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.Disabled = true },
		func(p *v1alpha1.RoutingPolicySpec) { *p = *r.changed(func(*v1alpha1.RoutingPolicySpec) {}) },
	}
	base := r.changed(func(*v1alpha1.RoutingPolicySpec) {})
	for side := range 3 {
		applying.Go(func() {
			for i := range 6 {
				spec := base.DeepCopy()
				change[(side*3+i)%len(change)](spec)
				if err := r.Apply(t.Context(), spec); err != nil {
					t.Errorf("Apply: %v", err)
				}
			}
		})
	}
	applying.Wait()
	writeWorkers(t, r.dir, prefillA+decodeA)
	r.eventually(t, "the pool changes", func() bool { return len(r.fleet().Workers) == 2 })
	if err := r.Apply(t.Context(), base); err != nil {
		t.Error(err)
	}
	close(stop)
	asking.Wait()
	r.wantIdle(t)
	r.eventually(t, "one generation is left", func() bool { return r.alive() == 1 })
	r.eventually(t, "one connection is left", func() bool { return connections(t, one) == 1 && connections(t, two) == 0 })
	if got := r.metric(t, "warmpath_panics_total"); got != 0 {
		t.Errorf("%v panics\n%s", got, r.log)
	}
}
