// Package gateway tests warmpath behind a real gateway: Istio's control plane reads
// InferencePools and HTTPRoutes from a real API server and configures an Envoy,
// which asks the picker. The picker runs as the Helm chart says: its Deployment,
// Service, Role and configuration are rendered, applied, and played out by the test
// in the place of a kubelet. Workers are simulated, at the addresses of their pods.
//
// The API server takes no loopback addresses for EndpointSlices. The tests therefore
// run in a user and network namespace of their own, where a whole subnet is local.
package gateway
