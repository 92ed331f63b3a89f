// Package assets pins the parts of a cluster that tests run for real: etcd, the
// Kubernetes API server, Istio's control plane, and the CRDs. They are a module of
// their own because their dependencies are many and the picker needs none of them.
// Package internal/testcluster of the root module builds them.
package assets
