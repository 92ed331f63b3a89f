package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
)

// collector shows the counts that index, event plane, pool and load keep anyway,
// so that counting costs the hot path nothing.
type collector App

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("warmpath_"+name, help, labels, nil)
}

var (
	descWorkers     = desc("pool_workers", "Ready workers in the pool.", "role")
	descCondition   = desc("policy_condition", "1 while a condition of the pool's policy is true, 0 while it is false; absent while it is unknown.", "type", "reason")
	descEntries     = desc("index_entries", "Blocks in the prefix index, counted once per worker and tier.")
	descHeld        = desc("worker_blocks", "Blocks that a worker holds according to its events.", "worker_id", "rank", "tier")
	descIndexEvents = desc("index_blocks_total", "Blocks that events stored or removed, and what was odd about them.", "kind")

	descBytes    = desc("index_bytes", "Memory of the prefix index.")
	descMaxBytes = desc("index_bytes_max", "Bound of that memory.")
	descEvicted  = desc("index_evicted_total", "Blocks that were given up to keep the bound, or found no room (no_room).", "kind")

	descRemembered    = desc("remembered_blocks", "Blocks that earlier decisions sent to workers and that are remembered for it, counted once per worker.")
	descRememberedMem = desc("remembered_bytes", "Memory of those.")
	descRememberedMax = desc("remembered_bytes_max", "Bound of that memory.")

	descConnected   = desc("event_plane_connected", "1 while connected to NATS.")
	descDisconnects = desc("event_plane_disconnects_total", "Times the connection to NATS was lost.")
	descMessages    = desc("event_messages_total", "Messages with KV-cache events, by component of their subject.", "component")
	descOddMessages = desc("event_messages_odd_total", "Messages that could not be used, or not wholly.", "kind")

	descWaiting  = desc("event_queue_messages", "Messages that wait to be taken in.")
	descCapacity = desc("event_queue_messages_max", "How many may wait before NATS drops others.")
	descLag      = desc("event_stream_lag_messages", "Messages in the stream that are not taken in yet; only while it is read.")
	descLost     = desc("event_stream_lost_total", "Messages that the limits of the stream removed before they were read.")
	descFallback = desc("event_stream_fallbacks_total", "Times that events had to be heard from NATS itself because the stream did not serve.")

	descState     = desc("worker_state", "1 for the state of what is known of a worker: synced, suspect, resyncing or partial.", "worker_id", "rank", "state")
	descRecovered = desc("worker_events_recovered_total", "Missed events that the worker told again.", "worker_id", "rank")
	descResyncs   = desc("worker_resyncs_total", "Times that a worker told all that it holds (told), or that what it held was forgotten because nobody could tell (given_up).", "worker_id", "rank", "kind")

	descEvents   = desc("worker_events_total", "Events applied, per worker.", "worker_id", "rank")
	descGaps     = desc("worker_event_gaps_total", "Times that a worker's event ids jumped ahead.", "worker_id", "rank")
	descMissed   = desc("worker_events_missed_total", "Events that those jumps skipped.", "worker_id", "rank")
	descRestarts = desc("worker_restarts_total", "Times that another process spoke for a worker, or its event ids started over.", "worker_id", "rank")
	descUnused   = desc("worker_events_unused_total", "Events that changed nothing in the index, by reason: duplicate, of a process that was replaced (stale), refused because the worker is in no pool or the index is full, about an unknown storage tier.", "worker_id", "rank", "reason")
	descStrays   = desc("worker_events_stray_total", "Events that another rank's publisher sent for this rank; their ids cannot be followed.", "worker_id", "rank")

	descRho         = desc("prefill_busy_ratio", "Share of time that workers which compute prompts were busy with it, a mean over some two minutes.")
	descPace        = desc("worker_prefill_seconds_per_token", "What a prompt token takes on a worker, learned from first outputs; 0 until it is known.", "worker_id", "rank")
	descTransfer    = desc("transfer_seconds", "What handing a prompt from prefill to decode worker takes, learned from first outputs: once (serial), and for each of its tokens (per_token); 0 until it is known.", "part")
	descPrefillLoad = desc("worker_prefill_tokens", "Prompt tokens booked on a worker and not yet computed.", "worker_id", "rank")
	descDecodeLoad  = desc("worker_decode_blocks", "KV blocks of the requests that decode on a worker.", "worker_id", "rank")
	descRequests    = desc("worker_requests", "Requests that decode on a worker.", "worker_id", "rank")

	descLoadMessages = desc("load_messages_total", "Messages of engines and other routers about load, by topic.", "topic")
	descOddLoads     = desc("load_messages_odd_total", "Messages about load, or words in them, that were odd: most of them were not used.", "kind")
	descAnnounced    = desc("announcements_total", "Messages that told other routers of requests placed by this picker, by kind.", "kind")
	descUnannounced  = desc("announcements_dropped_total", "Messages that should have, by the reason why they could not.", "reason")

	descReplicas      = desc("replicas", "Other pickers that are alive and tell what they have under way.")
	descReplicaAge    = desc("replica_state_age_seconds", "Age of the oldest of the states that they told; 0 while there are no others.")
	descReplicaStates = desc("replica_state_messages_total", "Messages in which pickers tell each other all that they have under way, by direction: sent, received.", "direction")
	descOddReplicas   = desc("replica_messages_odd_total", "Messages of other pickers that could not be used, or not wholly.", "kind")
	descReplicasLost  = desc("replicas_lost_total", "Other pickers that fell silent without a goodbye.")

	descEngineUsed           = desc("engine_kv_used_blocks", "KV blocks in use, by the worker's own count.", "worker_id", "rank")
	descEngineQueued         = desc("engine_queued_requests", "Requests in the engine's own queue.", "worker_id", "rank")
	descEngineQueuedTokens   = desc("engine_queued_prefill_tokens", "Prompt tokens in the engine's own queue.", "worker_id", "rank")
	descEngineWaiting        = desc("engine_waiting_requests", "Requests that wait in the engine, by its own metrics.", "worker_id", "rank")
	descEngineRunning        = desc("engine_running_requests", "Requests that the engine computes, by its own metrics.", "worker_id", "rank")
	descEngineKVUse          = desc("engine_kv_usage_ratio", "Share of the engine's KV blocks that are in use, by its own metrics.", "worker_id", "rank")
	descFailingScrapes       = desc("scrape_failing_endpoints", "Endpoints whose engine metrics could not be read the last time.")
	descForeignRequests      = desc("foreign_requests", "Requests on a worker that other routers placed.", "worker_id", "rank")
	descForeignPrefillTokens = desc("foreign_prefill_tokens", "Prompt tokens of those that are not computed yet, as far as their routers told.", "worker_id", "rank")
)

// figureAge says how long figures of engines are shown. Engines speak of their
// queue once a second, and of their blocks when those change.
var figureAge = load.MaxAge{Occupancy: 5 * time.Minute, Step: 10 * time.Second}

// Describe sends nothing: the set of workers is not known beforehand, so the
// collector is an unchecked one.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads all counts.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	pool := (*App)(c).fleet()
	for _, role := range []fleet.Role{fleet.Aggregated, fleet.Prefill, fleet.Decode} {
		gauge(descWorkers, float64(pool.Count(role)), role.String())
	}
	// Read holds the lock that decisions need: take the figures first, and hand
	// them to a scrape, which may be slow, afterwards.
	figures := make(map[fleet.Key]load.Figures, len(pool.Workers))
	c.load.Booked(func(k fleet.Key, f load.Figures) { figures[k] = f })
	for k, f := range figures {
		id, rank := labelsOf(k)
		gauge(descPrefillLoad, float64(f.PrefillTokens), id, rank)
		gauge(descDecodeLoad, float64(f.DecodeBlocks), id, rank)
		gauge(descRequests, float64(f.Requests), id, rank)
	}
	c.learned(gauge)
	if c.cluster != nil {
		for name, reason := range c.cluster.Verdicts() {
			gauge(descCondition, reason.Value, name, reason.Reason)
		}
	}
	now := c.current.Load()
	now.events.gauges(pool, gauge)
	r := now.guesses.Remembered()
	gauge(descRemembered, float64(r.Blocks))
	gauge(descRememberedMem, float64(r.Bytes))
	gauge(descRememberedMax, float64(r.MaxBytes))
	if t := now.tokenizer; t != nil && t.inProcess != nil {
		t.inProcess.gauges(gauge)
	}
	if now.metrics != nil {
		now.metrics.gauges(pool, gauge)
	}
	for s, n := range c.totals.sum() {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, float64(n), s.labels()...)
	}
}

type emitGauge func(d *prometheus.Desc, v float64, labels ...string)

type emitCounter func(d *prometheus.Desc, v uint64, labels ...string)

// gauges shows what is so now.
func (e *events) gauges(pool *fleet.Snapshot, gauge emitGauge) {
	gauge(descEntries, float64(e.index.Stats().Entries))
	m := e.index.Memory()
	gauge(descBytes, float64(m.Bytes))
	gauge(descMaxBytes, float64(m.Max))
	for _, k := range e.index.Workers() {
		id, rank := labelsOf(k)
		for t, n := range e.index.Held(k) {
			if t == int(kvevent.Device) || n > 0 {
				gauge(descHeld, float64(n), id, rank, kvevent.Tier(t).String())
			}
		}
	}
	if e.plane == nil {
		return
	}
	s := e.plane.Stats()
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	gauge(descConnected, connected)
	gauge(descWaiting, float64(s.Waiting))
	gauge(descCapacity, float64(s.Capacity))
	if s.Stream.Name != "" {
		gauge(descLag, float64(s.Stream.Lag))
	}
	for k, w := range e.plane.Workers() {
		id, rank := labelsOf(k)
		gauge(descState, 1, id, rank, w.State.String())
	}
	peers, oldest := e.plane.Peers()
	gauge(descReplicas, float64(peers))
	gauge(descReplicaAge, oldest.Seconds())
	e.engineGauges(pool, gauge)
}

// engineGauges shows the fresh figures of the workers in the pool.
func (e *events) engineGauges(pool *fleet.Snapshot, gauge emitGauge) {
	now := time.Now()
	for i := range pool.Workers {
		k := pool.Workers[i].Key
		f := e.engines.Get(k, now, figureAge)
		id, rank := labelsOf(k)
		if f.UsedBlocks.Known() {
			gauge(descEngineUsed, float64(f.UsedBlocks.N), id, rank)
		}
		if f.Queued.Known() {
			gauge(descEngineQueued, float64(f.Queued.Prefills)+float64(f.Queued.Decodes), id, rank)
			gauge(descEngineQueuedTokens, float64(f.Queued.PrefillTokens), id, rank)
		}
		gauge(descForeignRequests, float64(f.Foreign.Requests), id, rank)
		gauge(descForeignPrefillTokens, float64(f.Foreign.PrefillTokens), id, rank)
	}
}

// counters tells what happened since the part was made.
func (e *events) counters(counter emitCounter) {
	s, m := e.index.Stats(), e.index.Memory()
	counter(descEvicted, m.Evicted, "evicted")
	counter(descEvicted, m.NoRoom, "no_room")
	counter(descIndexEvents, s.Stored, "stored")
	counter(descIndexEvents, s.Duplicates, "duplicate")
	counter(descIndexEvents, s.Replaced, "replaced")
	counter(descIndexEvents, s.UnknownParents, "unknown_parent")
	counter(descIndexEvents, s.Removed, "removed")
	counter(descIndexEvents, s.UnknownRemovals, "unknown_removal")
	counter(descIndexEvents, s.Cleared, "cleared")
	if e.plane != nil {
		e.planeCounters(counter)
		e.workerCounters(counter)
		e.loadCounters(counter)
		e.announceCounters(counter)
		e.replicaCounters(counter)
	}
}

func (e *events) planeCounters(counter emitCounter) {
	s := e.plane.Stats()
	counter(descDisconnects, s.Disconnects)
	for component, n := range s.ByComponent {
		counter(descMessages, n, component)
	}
	counter(descOddMessages, s.BadMessages, "bad")
	counter(descOddMessages, s.OtherSpace, "other_namespace")
	counter(descOddMessages, s.Dropped, "dropped")
	counter(descOddMessages, s.Decode.BadEvents, "bad_event")
	counter(descOddMessages, s.Decode.UnknownFields, "unknown_field")
	counter(descOddMessages, s.Decode.UnknownTiers, "unknown_tier")
	counter(descOddMessages, s.Decode.EmptyStores, "empty_store")
	counter(descLost, s.Stream.Lost)
	counter(descFallback, s.Stream.Fallbacks)
}

func (e *events) workerCounters(counter emitCounter) {
	for k, w := range e.plane.Workers() {
		id, rank := labelsOf(k)
		counter(descRecovered, w.Recovered, id, rank)
		counter(descResyncs, w.Resyncs, id, rank, "told")
		counter(descResyncs, w.GivenUp, id, rank, "given_up")
		counter(descEvents, w.Events, id, rank)
		counter(descGaps, w.Gaps, id, rank)
		counter(descMissed, w.Missed, id, rank)
		counter(descRestarts, w.Restarts, id, rank)
		counter(descUnused, w.Duplicates, id, rank, "duplicate")
		counter(descUnused, w.Stale, id, rank, "stale")
		counter(descUnused, w.Refused, id, rank, "refused")
		counter(descUnused, w.Ignored, id, rank, "unknown_tier")
		counter(descStrays, w.Strays, id, rank)
	}
}

func (e *events) loadCounters(counter emitCounter) {
	s := e.plane.LoadStats()
	for topic, n := range s.ByTopic {
		counter(descLoadMessages, n, topic)
	}
	counter(descOddLoads, s.BadMessages, "bad")
	counter(descOddLoads, s.Misplaced, "wrong_subject")
	counter(descOddLoads, s.Own, "own")
	counter(descOddLoads, s.OtherSpace, "other_namespace")
	counter(descOddLoads, s.Dropped, "dropped")
	counter(descOddLoads, s.UnknownFields, "unknown_field")
	odd := e.engines.Stats()
	counter(descOddLoads, odd.Reordered, "reordered")
	counter(descOddLoads, odd.Strangers, "unknown_worker")
	counter(descOddLoads, odd.LateAdds, "placed_after_end")
	counter(descOddLoads, odd.LongIDs, "long_request_id")
	counter(descOddLoads, odd.Expired, "request_expired")
	counter(descOddLoads, odd.Overflowed, "too_many_requests")
}

func (e *events) announceCounters(counter emitCounter) {
	s := e.plane.AnnounceStats()
	counter(descAnnounced, s.Added, "AddRequest")
	counter(descAnnounced, s.Prefilled, "MarkPrefillCompleted")
	counter(descAnnounced, s.Freed, "Free")
	counter(descUnannounced, s.UnknownPlace, "unknown_place")
	counter(descUnannounced, s.QueueFull, "queue_full")
	counter(descUnannounced, s.NotConnected, "not_connected")
	counter(descUnannounced, s.TooLarge, "too_large")
	counter(descUnannounced, s.Denied, "denied")
}

func (e *events) replicaCounters(counter emitCounter) {
	s := e.plane.ReplicaStats()
	counter(descReplicaStates, s.Sent, "sent")
	counter(descReplicaStates, s.Received, "received")
	counter(descReplicasLost, s.Lost)
	counter(descOddReplicas, s.BadMessages, "bad")
	counter(descOddReplicas, s.OtherVersions, "other_version")
	counter(descOddReplicas, s.UnknownFields, "unknown_field")
	counter(descOddReplicas, s.Dropped, "dropped")
}

func labelsOf(k fleet.Key) (id, rank string) {
	return strconv.FormatUint(k.ID, 10), strconv.FormatUint(uint64(k.Rank), 10)
}

// learned are the figures that decisions learn from what became of earlier ones.
func (c *collector) learned(gauge func(*prometheus.Desc, float64, ...string)) {
	gauge(descRho, c.load.Rho())
	c.load.Read(func(k fleet.Key, f load.Figures) {
		id, rank := labelsOf(k)
		gauge(descPace, f.SecondsPerToken, id, rank)
	})
	serial, perToken, _ := c.load.TransferEstimate()
	gauge(descTransfer, serial, "serial")
	gauge(descTransfer, perToken, "per_token")
}
