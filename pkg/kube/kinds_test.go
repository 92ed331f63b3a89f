package kube

import (
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
)

// leavingInformer has read all objects, and is taken away as soon as it said so.
type leavingInformer struct {
	toolscache.SharedIndexInformer
	of    *kind
	store toolscache.Store
}

func (i leavingInformer) HasSynced() bool {
	i.of.informer.Store(nil)
	return true
}

func (i leavingInformer) GetStore() toolscache.Store { return i.store }

// TestObjectsWhileAnInformerGoes: the prober may take an informer away, to begin again
// or for good, while the pool is built.
func TestObjectsWhileAnInformerGoes(t *testing.T) {
	k := newNodes()
	k.state.Store(kindFollowed)
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	k.attach(leavingInformer{of: k, store: store})
	for range 2 { // the second time there is no informer
		if k.objects() != store {
			t.Error("what was read is gone")
		}
	}
}
