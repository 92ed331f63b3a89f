package extproc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// liveness is the health service name that never depends on readiness
// (endpoint-picker.md 1.9).
const liveness = "liveness"

// healthService is the gRPC health protocol over a Server: "liveness" is always
// SERVING, every other name says whether requests are welcome.
type healthService Server

// Check answers one probe.
func (h *healthService) Check(_ context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return &healthv1.HealthCheckResponse{Status: h.status(req.GetService())}, nil
}

// List answers for the names people probe.
func (h *healthService) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	all := map[string]*healthv1.HealthCheckResponse{}
	for _, name := range []string{"", liveness, "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		all[name] = &healthv1.HealthCheckResponse{Status: h.status(name)}
	}
	return &healthv1.HealthListResponse{Statuses: all}, nil
}

// Watch is not offered: gateways and kubelets poll.
func (h *healthService) Watch(*healthv1.HealthCheckRequest, grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	return status.Error(codes.Unimplemented, "watch is not offered; poll Check")
}

func (h *healthService) status(service string) healthv1.HealthCheckResponse_ServingStatus {
	switch {
	case service == liveness:
		return healthv1.HealthCheckResponse_SERVING
	case h.draining.Load():
		return healthv1.HealthCheckResponse_NOT_SERVING
	case h.cfg.Ready != nil && h.cfg.Ready() != nil:
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
		return healthv1.HealthCheckResponse_SERVING
	}
}
