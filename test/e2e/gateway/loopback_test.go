package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// loopback says that the tests run on the loopback of the machine: pods have
// addresses that the API server does not take for EndpointSlices. Istio is then told
// of them by objects of its own. The one difference that tests could see: a pod that
// is not ready leaves the gateway's endpoints, which in a cluster it does not.
var loopback bool

// useLoopback takes a part of 127.0.0.0/8 that other runs hardly have.
func useLoopback() error {
	loopback = true
	second := byte(64 + rand.IntN(128))
	subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, second, 0, 0}), 16)
	mainAddr = netip.AddrFrom4([4]byte{127, second, 0, 1})
	return nil
}

// istioObject makes an object of Istio.
func istioObject(version, kind, namespace, name string, spec tree) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: tree{
		"apiVersion": "networking.istio.io/" + version, "kind": kind,
		"metadata": tree{"namespace": namespace, "name": name}, "spec": spec,
	}}
}

// bindGateway keeps the Gateway's listener from taking its port of all addresses of
// the machine.
func (p *controlPlane) bindGateway(ctx context.Context) error {
	if !loopback {
		return nil
	}
	return p.apply(ctx, []*unstructured.Unstructured{istioObject("v1alpha3", "EnvoyFilter", edgeNamespace, "bind", tree{
		"configPatches": []any{tree{
			"applyTo": "LISTENER",
			"match":   tree{"context": "GATEWAY"},
			"patch": tree{"operation": "MERGE", "value": tree{
				"address": tree{"socket_address": tree{"address": mainAddr.String()}},
			}},
		}},
	})})
}

// publish makes a ready pod an endpoint of the Services that select it. ports are the
// numbers of the ports that these name.
func (p *controlPlane) publish(ctx context.Context, namespace, name string, addr netip.Addr, labels map[string]string, ports tree) error {
	if !loopback {
		return nil // the controller has seen that it is ready
	}
	all := tree{}
	for k, v := range labels {
		all[k] = v
	}
	spec := tree{"address": addr.String(), "labels": all}
	if len(ports) > 0 {
		spec["ports"] = ports
	}
	return p.apply(ctx, []*unstructured.Unstructured{istioObject("v1", "WorkloadEntry", namespace, name, spec)})
}

// withdraw undoes publish.
func (p *controlPlane) withdraw(ctx context.Context, namespace, name string) error {
	if !loopback {
		return nil
	}
	return p.cluster.Client().Delete(ctx, istioObject("v1", "WorkloadEntry", namespace, name, nil))
}

// publishPool makes the pods of a pool its endpoints. Istio has a Service of its own
// making for every pool, whose name this takes.
func (p *controlPlane) publishPool(ctx context.Context, namespace, pool string, port int, labels map[string]string) error {
	if !loopback {
		return nil
	}
	sum := sha256.Sum256([]byte(pool))
	service := pool + "-ip-" + hex.EncodeToString(sum[:4])
	selector := tree{}
	for k, v := range labels {
		selector[k] = v
	}
	return p.apply(ctx, []*unstructured.Unstructured{istioObject("v1", "ServiceEntry", namespace, pool, tree{
		"hosts":    []any{service + "." + namespace + ".svc.cluster.local"},
		"location": "MESH_INTERNAL", "resolution": "STATIC",
		"ports":            []any{tree{"number": int64(54321), "name": "http-0", "protocol": "HTTP", "targetPort": int64(port)}},
		"workloadSelector": tree{"labels": selector},
	})})
}
