// Package testcluster gives tests a real Kubernetes API server with the CRDs that
// warmpath works with, and stands in for the parts of a cluster that are not there:
// it writes pods as a kubelet would, and hands out tokens of service accounts, so
// that RBAC is enforced as in a cluster.
//
// etcd and kube-apiserver are built from their Go modules, pinned in hack/assets,
// into the cache folder. [Start] does that when it must; `make envtest-assets` does
// it beforehand. A test binary starts one cluster in its TestMain and gives each
// test a [Cluster.Namespace] of its own.
package testcluster
