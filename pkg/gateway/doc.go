// Package gateway is what the demo and the whole-system tests put in front of
// the picker: a real Envoy ([InstallEnvoy], [StartEnvoy]) or, for machines that
// cannot run one, a small reverse proxy in Go that speaks ext-proc to the
// picker as Envoy does ([Builtin]).
//
// It never picks a worker and never looks into a body. It is not meant for
// production: there, a gateway is installed by the platform team. Start at
// [Config].
//
// Facts: reference envoy.md. Every one that [Builtin] copies is held by a test
// that drives Envoy and Builtin through the same cases.
package gateway
