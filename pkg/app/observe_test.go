package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kube"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestObserve: what a status is made of.
func TestObserve(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, noText+heardFrom(ns), prefillA+prefillB+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	ids, body := tokens(1, 12)
	host := stored(12, 2, ids[:8])
	host.Tier = kvevent.Host
	publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids), host)
	publish(t, ns, dynamo.Gen14, "decode", stored(21, 1, ids[:4]))
	publish(t, ns, dynamo.Gen14, "prefill", stored(99, 1, ids)) // of a worker that no pool has
	r.eventually(t, "the events are taken in", func() bool { return r.Observe().Events.Received == 4 })
	r.waitMetric(t, `warmpath_index_entries`, 9)
	r.ask(t, completions, body)
	r.ask(t, completions, `{"model":"m","prompt":"hello"}`) // nobody knows its token ids
	want := kube.Observation{
		Decisions: 2, Prompts: 2, KnownPrompts: 1, TotalBlocks: 3, MatchedBlocks: 3, BestBlocks: 3, FoundPrompts: 1, StrangerEvents: 1,
		Events: kube.EventState{Connected: true, Received: 4},
	}
	want.IndexedBlocks[fleet.Prefill], want.IndexedBlocks[fleet.Decode] = 5, 1
	if got := r.Observe(); !sameObservation(got, want) {
		t.Errorf("observed %+v, want %+v", got, want)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.Disabled = true })
	want.Events.Disabled, want.Events.Connected, want.IndexedBlocks = true, false, [3]int{}
	r.eventually(t, "all that was counted is still there", func() bool { return sameObservation(r.Observe(), want) })

	stopNATS(ns)
	port := testport.Free(t)
	r.grace = 0
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.EventPlane.Disabled, p.EventPlane.NATS.URL = false, fmt.Sprintf("nats://127.0.0.1:%d", port)
	})
	r.eventually(t, "it is said why there is no connection", func() bool {
		e := r.Observe().Events
		return !e.Connected && !e.Disabled && e.LastError != ""
	})
}

func sameObservation(a, b kube.Observation) bool { return same(a, b) }

// TestObserveFiles: files that a policy names and that are not there, each with its
// field.
func TestObserveFiles(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	r := start(t, noText+noEvents, aggregated)
	r.waitReady(t)
	if got := r.Observe(); got.MissingFiles != nil || got.TokenizerWaits != "" {
		t.Errorf("observed %+v", got)
	}
	template := filepath.Join(dir, "none.jinja")
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) {
		p.Tokenizer.Disabled = false
		p.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: dir}
		p.Tokenizer.InProcess.ChatTemplate.File = template
		p.Tokenizer.InProcess.Default()
	})
	got := r.Observe().MissingFiles
	if len(got) != 1 || !strings.Contains(got[0].Error(), template) || !strings.Contains(got[0].Error(), "chatTemplate.file") {
		t.Errorf("missing files %v", got)
	}
}

// TestObserveTokenizer: nobody is there yet who could tell token ids.
func TestObserveTokenizer(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	r := start(t, inProcessSpec(dir, ""), prefillA)
	r.eventually(t, "it waits for an engine", func() bool { return r.Observe().TokenizerWaits == "no engine to compare with yet" })
}

// TestRestartedWorkerHoldsNothing, nor is anything expected of it.
func TestRestartedWorkerHoldsNothing(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, noText+"eventPlane: {speculationTTL: 1h, nats: {url: \""+ns.ClientURL()+"\"}}", prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	ids, body := tokens(1, 12)
	publish(t, ns, dynamo.Gen14, "prefill", stored(11, 1, ids[:8]))
	r.waitMetric(t, `warmpath_index_entries`, 2)
	publishLoad(t, ns, dynamo.Gen14, "prefill", usedBlocks(11, 7))
	r.waitMetric(t, `warmpath_engine_kv_used_blocks{rank="0",worker_id="11"}`, 7)
	const best = `warmpath_prompt_blocks_total{kind="best"}`
	r.ask(t, completions, body)
	r.ask(t, completions, body) // a guess has the third block
	if got := r.metric(t, best); got != 2+3 {
		t.Errorf("best match %v blocks, want 5", got)
	}
	r.restarted(fleet.Key{ID: 11})
	r.ask(t, completions, body)
	if got := r.metric(t, best); got != 2+3 {
		t.Errorf("after the restart: best match %v blocks in all, want 5", got)
	}
	if got := r.metric(t, `warmpath_engine_kv_used_blocks{rank="0",worker_id="11"}`); got != -1 {
		t.Errorf("%v blocks in use, want none", got)
	}
}

// TestApplyStream: an event plane that reads a stream is replaced by another one on
// the same stream, which has read it before it is used.
func TestApplyStream(t *testing.T) {
	ns := startServer(t, &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()})
	r := start(t, noText+"eventPlane: {nats: {url: \""+ns.ClientURL()+"\"}, jetStream: {enabled: true, maxBytes: 16777216}, warmUp: {timeout: 10m}}", prefillA+prefillB+decodeA)
	r.waitReady(t)
	ids, _ := tokens(1, 12)
	publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids))
	r.waitMetric(t, heldBy12, 3)
	old := r.current.Load().events
	for _, change := range []func(*v1alpha1.RoutingPolicySpec){
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.ReplicaSync = new(true) },
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.JetStream.Enabled = false }, // from the one before, as from a replica
		func(p *v1alpha1.RoutingPolicySpec) { p.EventPlane.JetStream.Enabled = true },
	} {
		r.apply(t, change)
		if got := r.metric(t, heldBy12); got != 3 {
			t.Errorf("in use with %v blocks, want 3\n%s", got, r.log)
		}
		<-old.done
		old = r.current.Load().events
	}
}
