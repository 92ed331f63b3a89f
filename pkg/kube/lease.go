package kube

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// leaseTimes are how long a lease lasts without its holder, how long the holder
// tries to renew it, and how often.
type leaseTimes struct{ lasts, renew, retry time.Duration }

var usualLease = leaseTimes{15 * time.Second, 10 * time.Second, 2 * time.Second}

// lease decides which replica speaks for all. Losing it, or an API server that is
// away, never ends the process: only status depends on it.
type lease struct {
	name, namespace, identity string
	client                    kubernetes.Interface
	times                     leaseTimes
	log                       *slog.Logger
	complaints                *complaints

	elector atomic.Pointer[leaderelection.LeaderElector] // nil between two of them
}

// held says whether this replica has the lease.
func (l *lease) held() bool {
	e := l.elector.Load()
	return e != nil && e.IsLeader()
}

// run tries to get the lease, again whenever it is lost, until ctx ends. It then
// gives it back.
func (l *lease) run(ctx context.Context) error {
	for ctx.Err() == nil {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Name: l.name,
			Lock: &watchedLock{l.complaints, &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: l.name, Namespace: l.namespace},
				Client:     l.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
			}},
			LeaseDuration: l.times.lasts, RenewDeadline: l.times.renew, RetryPeriod: l.times.retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
				OnNewLeader: func(id string) {
					l.log.Info("a replica writes status and events", "replica", id, "this_one", id == l.identity)
				},
			},
		})
		if err != nil {
			return err
		}
		l.elector.Store(e)
		e.Run(klog.NewContext(ctx, logr.Discard())) // watchedLock says what matters, once
		l.elector.Store(nil)
		if ctx.Err() == nil {
			l.log.Warn("the lease is lost; this replica writes no status and no events until it has it again", "lease", l.namespace+"/"+l.name)
		}
	}
	return nil
}

// watchedLock notes what goes wrong.
type watchedLock struct {
	complaints *complaints
	resourcelock.Interface
}

// Get implements resourcelock.Interface.
func (w *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := w.Interface.Get(ctx)
	w.complaints.about("get", "leases.coordination.k8s.io", err)
	return r, raw, err
}

// Create implements resourcelock.Interface.
func (w *watchedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := w.Interface.Create(ctx, r)
	w.complaints.about("create", "leases.coordination.k8s.io", err)
	return err
}

// Update implements resourcelock.Interface.
func (w *watchedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := w.Interface.Update(ctx, r)
	w.complaints.about("update", "leases.coordination.k8s.io", err)
	return err
}

// identity names this replica: its pod or, outside of one, something like the name
// of its host.
func identity() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, err := os.Hostname()
	if err != nil {
		host = "warmpath"
	}
	const most = 200 // a status allows 253
	return host[:min(len(host), most)] + "-" + uuid.NewString()[:8]
}
