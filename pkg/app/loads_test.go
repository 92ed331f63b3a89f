package app

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/load"
)

// usedBlocks is the message that a worker uses n KV blocks.
func usedBlocks(worker, n uint64) dynamo.Load {
	return dynamo.Load{Kind: dynamo.LoadMetrics, Metrics: dynamo.KVMetrics{
		WorkerID: worker, UsedBlocks: dynamo.Optional[uint64]{Value: n, Set: true},
	}}
}

// queued is the message that some requests wait in a worker.
func queued(worker, counter, requests, tokens uint64) dynamo.Load {
	return dynamo.Load{Kind: dynamo.LoadForwardPass, Pass: dynamo.ForwardPass{
		WorkerID: worker, Counter: counter,
		Queued: dynamo.Optional[dynamo.Requests]{Value: dynamo.Requests{Prefills: requests, PrefillTokens: tokens, Decodes: 1}, Set: true},
	}}
}

// word is what a router says about a request.
func word(kind dynamo.SequenceKind, worker uint64, request string, tokens uint64) dynamo.Load {
	e := dynamo.SequenceEvent{RequestID: []byte(request), WorkerID: worker, Kind: kind, RouterID: 77}
	if kind == dynamo.AddRequest {
		e.Added.TrackPrefill = true
		e.Added.Hint = dynamo.Optional[dynamo.PrefillHint]{Value: dynamo.PrefillHint{Tokens: tokens}, Set: true}
	}
	return dynamo.Load{Kind: dynamo.LoadSequence, Sequence: e}
}

// TestLoadOnMetrics: what engines and other routers say shows per worker of the
// pool, from both generations of subjects, until the worker starts over.
func TestLoadOnMetrics(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, "tokenizer: {disabled: true}\neventPlane: {nats: {url: \""+ns.ClientURL()+"\", namespace: ns}}", prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	const one, other, stranger = `{rank="0",worker_id="11"}`, `{rank="0",worker_id="21"}`, `{rank="0",worker_id="99"}`
	families := []string{"warmpath_engine_kv_used_blocks", "warmpath_engine_queued_requests", "warmpath_engine_queued_prefill_tokens"}
	for _, family := range families {
		if got := r.metric(t, family+one); got != -1 {
			t.Errorf("%s is %v before anything was said", family, got)
		}
	}
	ids, _ := tokens(1, 8)
	publish(t, ns, dynamo.Gen12, "prefill", stored(11, 1, ids))
	publish(t, ns, dynamo.Gen12, "prefill", stored(11, 2, ids))
	for _, l := range []dynamo.Load{
		word(dynamo.AddRequest, 11, "a", 40), word(dynamo.AddRequest, 11, "b", 50), word(dynamo.AddRequest, 11, "c", 60),
		word(dynamo.MarkPrefillCompleted, 11, "a", 0), word(dynamo.Free, 11, "b", 0),
	} {
		publishLoad(t, ns, dynamo.Gen12, "prefill", l)
	}
	r.waitMetric(t, `warmpath_load_messages_total{topic="active_sequences_events"}`, 5)
	seen := func() (f load.Figures) {
		r.load.Read(func(k fleet.Key, now load.Figures) {
			if k == (fleet.Key{ID: 11}) {
				f = now
			}
		})
		return f
	}
	// What engines say fades within seconds: on a machine that stalls it is said again.
	said := uint64(0)
	r.eventually(t, "all that was said shows", func() bool {
		said++
		for _, l := range []dynamo.Load{usedBlocks(99, 5), usedBlocks(11, 7), queued(11, said, 2, 300)} {
			publishLoad(t, ns, dynamo.Gen12, "prefill", l)
		}
		publishLoad(t, ns, dynamo.Gen14, "backend", usedBlocks(21, 0)) // stated, so known
		r.waitMetric(t, `warmpath_load_messages_total{topic="kv_metrics"}`, float64(3*said))
		r.waitMetric(t, `warmpath_load_messages_total{topic="forward-pass-metrics"}`, float64(said))
		return r.shows(t, map[string]float64{
			"warmpath_worker_prefill_tokens" + one: 0, "warmpath_worker_requests" + one: 0, // booked here
			"warmpath_engine_kv_used_blocks" + one: 7, "warmpath_engine_queued_requests" + one: 3, "warmpath_engine_queued_prefill_tokens" + one: 300,
			"warmpath_foreign_requests" + one: 2, "warmpath_foreign_prefill_tokens" + one: 60,
			"warmpath_engine_kv_used_blocks" + other: 0,
			"warmpath_foreign_requests" + other:      0, "warmpath_engine_queued_requests" + other: -1,
			"warmpath_engine_kv_used_blocks" + stranger: -1, "warmpath_foreign_requests" + stranger: -1,
		}) && seen() == load.Figures{PrefillTokens: 60, Requests: 2, Waiting: 3}
	})

	publishBytes(t, ns, "namespace.ns.kv_metrics", []byte{1})
	publishBytes(t, ns, "namespace.elsewhere.kv_metrics", nil)
	r.waitMetric(t, `warmpath_load_messages_odd_total{kind="bad"}`, 1)
	r.waitMetric(t, `warmpath_load_messages_odd_total{kind="other_namespace"}`, 1)

	publish(t, ns, dynamo.Gen12, "prefill", stored(11, 1, ids)) // event ids start over
	r.waitMetric(t, "warmpath_engine_kv_used_blocks"+one, -1)
	r.eventually(t, "after a restart nothing is known of the worker, and of the other one all", func() bool {
		publishLoad(t, ns, dynamo.Gen14, "backend", usedBlocks(21, 0))
		return r.shows(t, map[string]float64{
			"warmpath_engine_queued_requests" + one: -1, "warmpath_foreign_requests" + one: 0, "warmpath_engine_kv_used_blocks" + other: 0,
		})
	})
	if got := seen(); got != (load.Figures{}) {
		t.Errorf("after a restart, decisions see %+v", got)
	}
}

// TestDropSparesThePool: a worker that is back in the pool keeps its figures.
func TestDropSparesThePool(t *testing.T) {
	ns := startNATS(t, 0)
	r := start(t, "tokenizer: {disabled: true}\neventPlane: {nats: {url: \""+ns.ClientURL()+"\"}}", prefillA+decodeA)
	r.waitReady(t)
	r.waitSubscribed(t, ns)
	const used = `warmpath_engine_kv_used_blocks{rank="0",worker_id="11"}`
	publishLoad(t, ns, dynamo.Gen14, "prefill", usedBlocks(11, 7))
	r.waitMetric(t, used, 7)
	k := fleet.Key{ID: 11}
	r.current.Load().events.drop(k)
	if got := r.metric(t, used); got != 7 {
		t.Errorf("%v blocks after a drop of a worker in the pool, want 7", got)
	}
	writeWorkers(t, r.dir, decodeA)
	r.eventually(t, "the worker leaves the pool", func() bool { return !r.known(k) })
	r.current.Load().events.drop(k)
	writeWorkers(t, r.dir, prefillA+decodeA)
	r.eventually(t, "the worker is back", func() bool { return r.known(k) })
	if got := r.metric(t, used); got != -1 {
		t.Errorf("%v blocks after a drop of a worker that left, want none", got)
	}
}
