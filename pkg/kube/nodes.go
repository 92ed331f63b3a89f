package kube

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Nodes are followed only while the spec in use asks for their labels: they belong to
// the whole cluster, and few pickers may read them. Of a node only its metadata is
// asked for, and only the labels that the spec names are kept.

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// nodeMetadata is what the cache takes for a node without spec and status.
func nodeMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(nodeKind)
	return m
}

// newNodes returns the kind of nodes, which nobody asks for yet.
func newNodes() *kind {
	k := &kind{gvk: nodeKind, resource: "nodes", object: nodeMetadata(), global: true, unchanged: sameLabels}
	k.idle.Store(true)
	return k
}

// sameLabels says of two versions of a node that were trimmed that they differ in
// nothing that is used. A node reports every few minutes that it is well.
func sameLabels(old, now any) bool {
	a, isNode := old.(*metav1.PartialObjectMetadata)
	b, isToo := now.(*metav1.PartialObjectMetadata)
	return isNode && isToo && maps.Equal(a.Labels, b.Labels)
}

// nodeLabels are the labels of nodes that the spec in use asks for, in order; none
// when it does not ask for any.
func (w *Watcher) nodeLabels() []string {
	spec := w.spec.Load()
	if spec == nil || spec.Topology.LabelsFrom != v1alpha1.LabelsFromPodsAndNodes {
		return nil
	}
	t := &spec.Topology
	all := slices.Concat(t.ZoneLabels, t.RackLabels, t.HostLabels, t.FabricLabels)
	slices.Sort(all)
	return slices.Compact(all)
}

// nodesKnown says whether there is nothing to wait for: all nodes were read, or need
// not or must not be.
func (w *Watcher) nodesKnown() bool {
	return len(w.nodeLabels()) == 0 || w.kinds.nodes().settled()
}

// trimNode keeps of a node the labels that the cache is asked for.
func (w *Watcher) trimNode(object any) (any, error) {
	node, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil // the tombstone of a deletion that was missed
	}
	kept := nodeMetadata()
	kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	for _, name := range *w.keptLabels.Load() {
		if value := node.Labels[name]; value != "" {
			metav1.SetMetaDataLabel(&kept.ObjectMeta, name, value)
		}
	}
	return kept, nil
}

// nodes begins or ends to follow nodes, as the spec in use asks for. Other labels mean
// to read all nodes again: those that were not named before are not in the cache.
func (p *prober) nodes(ctx context.Context) error {
	k, want := p.w.kinds.nodes(), p.w.nodeLabels()
	if slices.Equal(want, p.nodeLabels) {
		return nil
	}
	k.idle.Store(len(want) == 0)
	p.w.keptLabels.Store(&want)
	var err error
	switch {
	case k.state.Load() != kindFollowed: // kinds follows it
	case len(want) == 0:
		p.w.cfg.Log.Info("the policy asks for no labels of nodes any more, not following them", "kind", k.qualified())
		err = k.drop(ctx, p.w.cluster.GetCache(), kindUnknown)
	default:
		err = k.restart(ctx, p.w.cluster.GetCache(), p.w.changedKind(k))
	}
	if err == nil {
		p.nodeLabels = want
	}
	return err
}

// siteRules are those of a spec.
func siteRules(t *v1alpha1.TopologySpec) fleet.SiteRules {
	return fleet.SiteRules{
		ZoneLabels: t.ZoneLabels, RackLabels: t.RackLabels, HostLabels: t.HostLabels, FabricLabels: t.FabricLabels,
		ConnectorLabels: t.ConnectorLabels,
	}
}

// labelsOfNodes returns how to find the labels of a node by its name; nil when the
// spec in use does not ask for them.
func (w *Watcher) labelsOfNodes() func(node string) map[string]string {
	if len(w.nodeLabels()) == 0 {
		return nil
	}
	store := w.kinds.nodes().objects()
	if store == nil {
		return nil // nothing was read yet
	}
	return func(name string) map[string]string {
		object, _, _ := store.GetByKey(name) // a store in memory: there is no error
		if node, ok := object.(*metav1.PartialObjectMetadata); ok {
			return node.Labels
		}
		return nil // it is gone, or not known yet
	}
}

// siteOf returns where a pod runs: by its own labels; by those of its node for what
// they do not say; and where neither names the host, that is the node.
func siteOf(r *rules, pod *corev1.Pod) fleet.Site {
	at := r.sites.Locate(pod.Labels)
	if r.nodeLabels != nil {
		node := r.sites.Locate(r.nodeLabels(pod.Spec.NodeName))
		node.Connector = "" // is of the engine, not of a place
		at = at.Or(node)
	}
	return fleet.SiteOf(at.Or(fleet.Location{Host: pod.Spec.NodeName}))
}
