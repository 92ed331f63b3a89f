package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

const (
	// settle is how long changes are collected before the pool is built anew: a
	// roll-out makes many at once.
	settle = 20 * time.Millisecond
	// syncPoll is how often the start looks whether all was read, of which an empty
	// list gives no sign.
	syncPoll = 100 * time.Millisecond
	// policyPoll is how often a policy that could not be applied is tried again.
	policyPoll = 2 * time.Second
	// patienceForMetadata is how long the first pool waits for what workers say of
	// themselves once their pods are known.
	patienceForMetadata = 5 * time.Second
)

// Watcher follows one pool. Make one with New.
type Watcher struct {
	cfg       *Config
	namespace string
	fixed     *target // in selector mode
	cluster   cluster.Cluster
	scheme    *runtime.Scheme
	kinds     kinds
	outages   *outages
	log       *problemLog

	prober    *prober
	policies  *policies
	publisher *publisher

	dirty       chan struct{} // the pool may have changed
	policyDirty chan struct{} // policies may have changed

	found atomic.Pointer[findings]
	spec  atomic.Pointer[v1alpha1.RoutingPolicySpec] // in use; nil before the first step
	view  atomic.Pointer[View]

	keptLabels atomic.Pointer[[]string] // of nodes, in the cache

	// Of the goroutine that builds the pool.
	lives    lives
	hadPool  bool      // a pool was there
	podsRead time.Time // when the pods were first known

	priorities map[string]int // of the objectives that were told last
	rewrites   []rewrite.Rule // that were told last
}

// kinds are the kinds that are followed, by what they are for. Those that only a pool
// needs are nil without one in the configuration.
type kinds []*kind

func (k kinds) of(resource string) *kind {
	for _, one := range k {
		if one.resource == resource {
			return one
		}
	}
	return nil
}

// kind returns the one of a group, version and kind.
func (k kinds) kind(gvk schema.GroupVersionKind) *kind {
	for _, one := range k {
		if one.gvk == gvk {
			return one
		}
	}
	return nil
}

func (k kinds) pods() *kind     { return k.of("pods") }
func (k kinds) metadata() *kind { return k.of("dynamoworkermetadatas") }
func (k kinds) pool() *kind     { return k.of("inferencepools") }
func (k kinds) policies() *kind { return k.of("routingpolicies") }
func (k kinds) nodes() *kind    { return k.of("nodes") }

// New returns a watcher that has not asked the API server for anything yet.
func New(cfg Config) (*Watcher, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	adoptLog(cfg.Log)
	config, err := restConfig(&cfg)
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		cfg: &cfg, dirty: make(chan struct{}, 1), policyDirty: make(chan struct{}, 1),
		log: &problemLog{log: cfg.Log},
	}
	if w.namespace, err = namespaceOf(&cfg.Discovery); err != nil {
		return nil, err
	}
	w.kinds = kinds{
		{gvk: podKind, resource: "pods", object: &corev1.Pod{}},
		{gvk: metadataKind, resource: "dynamoworkermetadatas", object: &workerMetadata{}},
	}
	if s := cfg.Discovery.Selector; s != nil {
		t, err := selectorTarget(s, w.namespace)
		if err != nil {
			return nil, err
		}
		w.fixed = &t
	} else {
		w.kinds = append(w.kinds,
			&kind{gvk: poolKind, resource: "inferencepools", object: &inferencev1.InferencePool{}},
			&kind{gvk: policyKind, resource: "routingpolicies", object: &v1alpha1.RoutingPolicy{}},
			&kind{gvk: objectiveKind, resource: objectiveResource, object: &objective{}, optional: true},
			&kind{gvk: oldObjectiveKind, resource: objectiveResource, object: &oldObjective{}, optional: true},
			&kind{gvk: rewriteKind, resource: rewriteResource, object: &modelRewrite{}, optional: true},
			&kind{gvk: oldRewriteKind, resource: rewriteResource, object: &oldModelRewrite{}, optional: true})
	}
	w.kinds = append(w.kinds, newNodes())
	w.keptLabels.Store(&[]string{})
	if w.cluster, err = newCluster(w, config); err != nil {
		return nil, err
	}
	w.scheme = w.cluster.GetScheme()
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, w.cluster.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	w.prober = &prober{w: w, discovery: discovery.ToDiscoveryInterfaceWithContext(d), access: newAccess(w.namespace), wake: make(chan struct{}, 1)}
	w.outages = &outages{log: cfg.Log, probe: func() { wake(w.prober.wake) }, failed: map[string]error{}}
	w.policies = newPolicies(w.cfg)
	w.publisher = newPublisher(w.cfg, w)
	return w, nil
}

// Run follows the pool until ctx ends, when it returns nil once all its goroutines
// have ended. Nothing that happens in the cluster makes it return before.
func (w *Watcher) Run(ctx context.Context) error {
	defer utilnet.CloseIdleConnectionsFor(w.cluster.GetHTTPClient().Transport)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.cluster.Start(ctx) })
	g.Go(func() error { return w.prober.run(ctx) })
	g.Go(func() error { return w.follow(ctx) })
	g.Go(func() error { return w.followPolicies(ctx) })
	g.Go(func() error { return w.publisher.run(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("following the pool: %w", err)
	}
	return nil
}

// View returns what is known of the pool now.
func (w *Watcher) View() View {
	if v := w.view.Load(); v != nil {
		return *v
	}
	return View{}
}

// wake leaves a sign in a channel that holds one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed says that the pool may have changed.
func (w *Watcher) changed() { wake(w.dirty) }

// changedKind returns what is to be called when objects of a kind change.
func (w *Watcher) changedKind(k *kind) func() {
	switch k {
	case w.kinds.policies():
		return func() { wake(w.policyDirty) }
	case w.kinds.pool():
		return func() {
			w.changed()
			wake(w.prober.wake) // its reference to the picker may be another
		}
	}
	return w.changed
}

// follow builds the pool anew after changes.
func (w *Watcher) follow(ctx context.Context) error {
	poll := time.NewTicker(syncPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.dirty:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(settle):
			}
			select { // what came in meanwhile is read now, too
			case <-w.dirty:
			default:
			}
		case <-poll.C:
		}
		w.rebuild()
		if w.View().Synced {
			poll.Stop()
		}
	}
}

// followPolicies has the policy half decide on the spec. It has a goroutine of its
// own, since taking a spec into use may take long, and pods go on changing.
func (w *Watcher) followPolicies(ctx context.Context) error {
	defer w.policies.wait()
	poll := time.NewTicker(syncPoll)
	defer poll.Stop()
	for {
		k := w.kinds.policies()
		if k == nil || k.settled() {
			spec := w.policies.step(ctx, w.policyList())
			if ctx.Err() != nil {
				return nil
			}
			if old := w.spec.Swap(spec); old != spec {
				if old == nil {
					poll.Reset(policyPoll)
				}
				w.changed()
				wake(w.prober.wake) // it may ask for labels of nodes, or for them no more
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.policyDirty:
		case <-w.policies.woken():
		case <-poll.C:
		}
	}
}

// policyList returns the policies of the namespace, to be read only.
func (w *Watcher) policyList() []v1alpha1.RoutingPolicy {
	objects := objectsOf[*v1alpha1.RoutingPolicy](w.kinds.policies())
	list := make([]v1alpha1.RoutingPolicy, len(objects))
	for i, p := range objects {
		list[i] = *p
	}
	return list
}

// currentPool returns the pool; nil when there is none, and in selector mode.
func (w *Watcher) currentPool() *inferencev1.InferencePool {
	for _, pool := range objectsOf[*inferencev1.InferencePool](w.kinds.pool()) {
		if pool.Name == w.cfg.Discovery.Pool.Name {
			return pool
		}
	}
	return nil
}

// rebuild reads all there is, and publishes the pool when it is another.
func (w *Watcher) rebuild() {
	old := w.View()
	v := View{Synced: old.Synced, Snapshot: old.Snapshot, Pool: w.currentPool()}
	if f := w.found.Load(); f != nil {
		v.Refs = f.problems
	}
	v.Synced = v.Synced || w.complete(v.Pool)
	if v.Synced {
		w.build(&v)
	}
	v.Refs = slices.Concat(v.Refs, w.followRewrites())
	w.view.Store(&v)
	w.followObjectives()
	w.notePool(old.Pool, v.Pool)
}

// complete says whether enough is known for a first pool: one with half of the
// pods, or with roles by the wrong spec, would be worse than none.
func (w *Watcher) complete(pool *inferencev1.InferencePool) bool {
	if !w.kinds.pods().synced() || w.fixed == nil && pool == nil || w.spec.Load() == nil {
		return false
	}
	if w.podsRead.IsZero() {
		w.podsRead = time.Now()
	}
	return w.kinds.metadata().settled() && w.rewritesKnown() && w.nodesKnown() || time.Since(w.podsRead) > patienceForMetadata
}

// build makes the pool, and publishes it when it is another.
func (w *Watcher) build(v *View) {
	spec := w.spec.Load()
	r := rules{
		roles: fleet.RoleRules(spec.Roles), sites: siteRules(&spec.Topology), nodeLabels: w.labelsOfNodes(),
		identity: w.cfg.Discovery.WorkerIdentity, activePorts: w.cfg.Discovery.ActivePortsAnnotations,
	}
	var p population
	if t, problems := w.target(v.Pool); t != nil {
		p = populate(*t, objectsOf[*corev1.Pod](w.kinds.pods()), w.metadata(), r)
		v.Refs = slices.Concat(v.Refs, problems, p.refs)
		v.Roles = p.roles
		v.Advertised = compare(p.processes, spec, r)
		for _, key := range w.lives.see(p.processes, w.cfg.Now()) {
			w.cfg.Log.Info("worker began anew, what it held is gone", "worker", key.String())
			w.cfg.Restarted(key)
		}
	}
	snapshot, err := fleet.NewSnapshot(p.workers)
	if err != nil { // populate leaves twins out
		w.cfg.Log.Error("pool not usable, keeping the last good one", "error", err)
		return
	}
	if v.Snapshot == nil || !slices.Equal(v.Snapshot.Workers, snapshot.Workers) {
		v.Snapshot = snapshot
		w.cfg.Publish(snapshot)
	}
}

// target returns what the workers of the pool have in common; nil without a pool.
func (w *Watcher) target(pool *inferencev1.InferencePool) (*target, []Problem) {
	if w.fixed != nil {
		return w.fixed, nil
	}
	if pool == nil {
		return nil, nil
	}
	t, problems := poolTarget(pool)
	return &t, problems
}

func (w *Watcher) metadata() map[string]*workerMetadata {
	objects := objectsOf[*workerMetadata](w.kinds.metadata())
	byName := make(map[string]*workerMetadata, len(objects))
	for _, m := range objects {
		byName[m.Name] = m
	}
	return byName
}

// notePool logs that the pool came or went.
func (w *Watcher) notePool(old, pool *inferencev1.InferencePool) {
	switch {
	case old == nil && pool != nil && w.hadPool:
		w.cfg.Log.Info("InferencePool is back", "pool", pool.Namespace+"/"+pool.Name)
	case old != nil && pool == nil:
		w.cfg.Log.Warn("InferencePool is gone, and with it all workers, until it is back", "pool", old.Namespace+"/"+old.Name)
		wake(w.prober.wake)
	case old == nil && pool != nil:
		w.cfg.Log.Info("InferencePool found", "pool", pool.Namespace+"/"+pool.Name)
	}
	w.hadPool = w.hadPool || pool != nil
}

// Synced returns nil once pool and pods were read. Before, the error says what is
// missing and how to mend it. An API server that goes away later changes nothing.
func (w *Watcher) Synced() error {
	if w.View().Synced {
		return nil
	}
	if err := w.outages.err(); err != nil {
		return fmt.Errorf("the API server at %s is not usable: %w; check the network and the service account", w.cluster.GetConfig().Host, err)
	}
	f := w.found.Load()
	switch {
	case f == nil:
		return errors.New("the API server was not asked yet")
	case f.keepsUnsynced() != "":
		return errors.New(f.keepsUnsynced())
	case f.err != nil:
		return fmt.Errorf("asking the API server at %s: %w", w.cluster.GetConfig().Host, f.err)
	case !w.kinds.pods().synced():
		return fmt.Errorf("pods of namespace %s are being read", w.namespace)
	case w.fixed == nil && w.currentPool() == nil:
		return fmt.Errorf("InferencePool %s/%s is being read", w.namespace, w.cfg.Discovery.Pool.Name)
	case w.spec.Load() == nil:
		return errors.New("the routing policy is being read, or taken into use")
	}
	return errors.New("what the workers say of themselves is being read")
}

// keepsUnsynced is the problem because of which pool or pods cannot be read, empty
// for none.
func (f *findings) keepsUnsynced() string {
	for _, p := range f.problems {
		switch p.Reason {
		case reasonForbidden, reasonPoolNotFound, reasonPoolKindMissing, reasonPoolInOldGroup:
			return p.Message
		}
	}
	return ""
}

// problemLog logs problems once each, when they come and when they are mended.
type problemLog struct {
	log   *slog.Logger
	mu    sync.Mutex
	known []Problem
}

func (l *problemLog) changes(now []Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range now {
		if !slices.Contains(l.known, p) {
			l.log.Warn("problem with the pool", "reason", p.Reason, "message", p.Message)
		}
	}
	for _, p := range l.known {
		if !slices.ContainsFunc(now, func(n Problem) bool { return n.Reason == p.Reason }) {
			l.log.Info("problem with the pool is mended", "reason", p.Reason)
		}
	}
	l.known = slices.Clone(now)
}
