// Package demo runs a whole disaggregated pool on one machine and drives chat
// traffic through it: NATS, simulated workers, the picker, and a real gateway in
// front. Start at [Run].
package demo
