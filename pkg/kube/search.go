package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

// oldPool is the InferencePool before it had a v1 (endpoint-picker.md 2.2).
var oldPool = schema.GroupVersionKind{Group: "inference.networking.x-k8s.io", Version: "v1alpha2", Kind: "InferencePool"}

const installPoolCRD = "install the CRDs of the Gateway API Inference Extension, version 1.0 or later"

// search says where a pool that is not there may be.
func (p *prober) search(ask context.Context) ([]Problem, error) {
	k := p.w.kinds.pool()
	if k == nil || p.w.currentPool() != nil || k.state.Load() == kindUnknown {
		return nil, nil
	}
	if k.state.Load() == kindFollowed && !k.synced() {
		return nil, nil
	}
	name := types.NamespacedName{Namespace: p.w.namespace, Name: p.w.cfg.Discovery.Pool.Name}
	old, err := exists(ask, p.discovery, oldPool)
	if err != nil {
		return nil, err
	}
	if k.state.Load() == kindMissing {
		if old {
			return []Problem{{reasonPoolInOldGroup, fmt.Sprintf(
				"the API server has the InferencePool of %s only, which this picker does not read; %s, and create %s again as inference.networking.k8s.io/v1",
				oldPool.Group, installPoolCRD, name)}}, nil
		}
		return []Problem{{reasonPoolKindMissing, "the API server has no InferencePool (inference.networking.k8s.io/v1); " + installPoolCRD +
			"; or set discovery.kubernetes.selector, which needs none"}}, nil
	}
	if old {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(oldPool)
		// A refusal or a miss says that there is nothing to tell about it.
		if err := p.w.cluster.GetAPIReader().Get(ask, name, u); err == nil {
			return []Problem{{reasonPoolInOldGroup, fmt.Sprintf(
				"InferencePool %s is there in the old group %s only, which this picker does not read; create it again as inference.networking.k8s.io/v1",
				name, oldPool.Group)}}, nil
		}
	}
	return p.missing(ask, name)
}

// missing says that there is no pool of that name, and which names there are.
func (p *prober) missing(ask context.Context, name types.NamespacedName) ([]Problem, error) {
	text := fmt.Sprintf("there is no InferencePool %s; create it, or correct discovery.kubernetes.pool", name)
	list := &inferencev1.InferencePoolList{}
	const enough = 100
	err := p.w.cluster.GetAPIReader().List(ask, list, client.InNamespace(name.Namespace), client.Limit(enough))
	switch {
	case apierrors.IsForbidden(err):
	case err != nil:
		return nil, err
	case len(list.Items) > 0:
		var others []string
		for i := range list.Items {
			others = append(others, list.Items[i].Name)
		}
		slices.Sort(others)
		text += "; the namespace has " + names(others)
	default:
		text += "; the namespace has none"
	}
	return []Problem{{reasonPoolNotFound, text}}, nil
}
