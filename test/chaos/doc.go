// Package chaos tests the event plane against a real nats-server that is killed,
// frozen and cut off while workers publish.
//
// Three parties say what happened. The ledger of the workers (ledger_test.go)
// knows every event that was published and what every worker holds. The witness
// (witness_test.go) sits in the proxy between server and plane and knows which of
// the messages the transport delivered: what it did not see is lost by the
// transport, what it did see must not be lost by the plane. The plane's own
// counters and its index are held against the two after every fault.
//
// Start at scenario_test.go. The tests build nats-server once, from the module in
// go.mod. A longer run: make soak SOAK_TIME=10m SOAK_SEED=7.
package chaos
