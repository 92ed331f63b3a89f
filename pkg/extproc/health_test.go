package extproc

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	serving    = healthv1.HealthCheckResponse_SERVING
	notServing = healthv1.HealthCheckResponse_NOT_SERVING
)

// onBothPorts runs a test on the stream port and on the health port.
func (l *live) onBothPorts(t *testing.T, f func(t *testing.T, conn *grpc.ClientConn)) {
	t.Helper()
	for name, address := range map[string]string{"stream port": l.streams, "health port": l.health} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, address)
			defer conn.Close()
			f(t, conn)
		})
	}
}

var readinessNames = []string{"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension", "anything"}

func TestHealthFollowsReadiness(t *testing.T) {
	var ready atomic.Bool
	l := startRig(t, splitPool(), func(c *Config) {
		c.Ready = func() error {
			if ready.Load() {
				return nil
			}
			return errors.New("no pool yet")
		}
	})
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{notServing, serving, notServing} {
		ready.Store(want == serving)
		l.onBothPorts(t, func(t *testing.T, conn *grpc.ClientConn) {
			for _, name := range readinessNames {
				if got := probe(t, conn, name); got != want {
					t.Errorf("%q is %v, want %v", name, got, want)
				}
			}
			if got := probe(t, conn, "liveness"); got != serving {
				t.Errorf("liveness is %v", got)
			}
		})
	}
}

func TestHealthWithoutReadiness(t *testing.T) {
	l := startRig(t, nil)
	l.onBothPorts(t, func(t *testing.T, conn *grpc.ClientConn) {
		if got := probe(t, conn, ""); got != serving {
			t.Errorf("got %v", got)
		}
	})
}

func TestHealthListAndWatch(t *testing.T) {
	l := startRig(t, nil, func(c *Config) { c.Ready = func() error { return errors.New("no") } })
	l.onBothPorts(t, func(t *testing.T, conn *grpc.ClientConn) {
		client := healthv1.NewHealthClient(conn)
		list, err := client.List(t.Context(), &healthv1.HealthListRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]healthv1.HealthCheckResponse_ServingStatus{}
		for name, s := range list.GetStatuses() {
			got[name] = s.GetStatus()
		}
		want := map[string]healthv1.HealthCheckResponse_ServingStatus{
			"": notServing, "readiness": notServing, "envoy.service.ext_proc.v3.ExternalProcessor": notServing, "liveness": serving,
		}
		if !maps.Equal(got, want) {
			t.Errorf("list %v, want %v", slices.Sorted(maps.Keys(got)), want)
		}
		watch, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("watch: %v", err)
		}
	})
}
