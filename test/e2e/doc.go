// Package e2e tests the whole system on real parts: cmd/epp and simulated
// workers as processes of their own, a NATS server in this process, a real Envoy
// in front. All Go parts are built with the race detector; a report of it, in
// any process, fails the test.
//
// It has no code but tests, and it never looks inside a part: it asks over HTTP,
// reads metrics and logs, and publishes on NATS. Tests wait for conditions, never
// for time to pass. Start at stack in stack_test.go.
package e2e
