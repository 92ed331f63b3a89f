package kube

import (
	"context"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// kind is a kind of object that is followed once the API server has it.
type kind struct {
	gvk      schema.GroupVersionKind
	resource string // plural, as in a Role
	object   client.Object
	optional bool // few clusters have it: its absence is nothing to mend
	global   bool // its objects are in no namespace

	// unchanged says of two versions of an object that they make no difference. Nil:
	// all do.
	unchanged func(old, now any) bool

	idle     atomic.Bool  // nobody asks for it: it is not followed
	state    atomic.Int32 // kindState
	lost     atomic.Bool  // the API server said that there is no such thing
	refused  atomic.Bool  // the API server said that we may not
	misses   int          // of the prober: looks in a row that did not find it
	informer atomic.Pointer[toolscache.SharedIndexInformer]

	mu   sync.Mutex
	last toolscache.Store // what was read last; stays while an informer starts over
}

type kindState = int32

const (
	kindUnknown kindState = iota // not asked yet
	kindMissing                  // the API server does not have it
	kindFollowed
)

// qualified is the resource as people write it: plural.group.
func (k *kind) qualified() string {
	if k.gvk.Group == "" {
		return k.resource
	}
	return k.resource + "." + k.gvk.Group
}

func (k *kind) attach(informer toolscache.SharedIndexInformer) { k.informer.Store(&informer) }

// synced says whether all objects were read at least once by the informer at work.
func (k *kind) synced() bool {
	informer := k.informer.Load()
	return k.state.Load() == kindFollowed && informer != nil && (*informer).HasSynced()
}

// settled says whether there is nothing to wait for: all was read, or the API
// server does not have the kind, or does not let us read it.
func (k *kind) settled() bool {
	return k.state.Load() == kindMissing || k.refused.Load() || k.synced()
}

// objects returns the objects, those read last while the informer starts over. Nil:
// none, as of a kind that is gone.
func (k *kind) objects() toolscache.Store {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.state.Load() != kindFollowed:
		k.last = nil
	case k.synced():
		k.last = (*k.informer.Load()).GetStore()
	}
	return k.last
}

// objectsOf returns the objects of a kind, which are shared: to be read only.
func objectsOf[T client.Object](k *kind) []T {
	if k == nil {
		return nil
	}
	store := k.objects()
	if store == nil {
		return nil
	}
	list := store.List()
	typed := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := o.(T); ok {
			typed = append(typed, t)
		}
	}
	return typed
}

// exists asks the API server whether it has a kind.
func exists(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, gvk schema.GroupVersionKind) (bool, error) {
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Kind == gvk.Kind {
			return true, nil
		}
	}
	return false, nil
}

// follow makes the cache follow a kind.
func (k *kind) follow(ctx context.Context, c cache.Cache, changed func()) error {
	informer, err := c.GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err = informer.AddEventHandler(k.telling(changed)); err != nil {
		return err
	}
	k.lost.Store(false)
	k.refused.Store(false)
	k.state.Store(kindFollowed)
	return nil
}

// telling returns what calls changed when objects change.
func (k *kind) telling(changed func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(old, now any) {
			if k.unchanged == nil || !k.unchanged(old, now) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	}
}

// restart makes the cache begin again to follow a kind, at once.
func (k *kind) restart(ctx context.Context, c cache.Cache, changed func()) error {
	k.objects() // keeps what is known until the new informer has read it all
	if err := c.RemoveInformer(ctx, k.object); err != nil {
		return err
	}
	k.informer.Store(nil)
	return k.follow(ctx, c, changed)
}

// drop ends following a kind that the API server has no more, or that nobody asks
// for, as the state after it says.
func (k *kind) drop(ctx context.Context, c cache.Cache, after kindState) error {
	k.state.Store(after)
	k.informer.Store(nil)
	k.objects() // lets go of them
	return c.RemoveInformer(ctx, k.object)
}

// kindOf returns the kind of an object. The cache asks for those of newCluster
// only.
func (w *Watcher) kindOf(object runtime.Object) *kind {
	if gvk, err := apiutil.GVKForObject(object, w.scheme); err == nil {
		if k := w.kinds.kind(gvk); k != nil {
			return k
		}
	}
	return &kind{} // of no use to anybody
}
