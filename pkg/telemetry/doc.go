// Package telemetry sets up logs and metrics for a process. It knows nothing of
// the rest of warmpath. Start at [NewLogger] and [NewRegistry].
package telemetry
