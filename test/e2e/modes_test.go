package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestBodyModes puts gateways in front that show bodies in other ways.
func TestBodyModes(t *testing.T) {
	for _, c := range []struct {
		follow            gateway.FollowMode
		request, response gateway.BodyMode
	}{
		{gateway.ByHeader, gateway.Buffered, gateway.Buffered},
		{gateway.ByMetadata, gateway.Buffered, gateway.FullDuplex},
		{gateway.OverrideHost, gateway.Buffered, gateway.None},
		{gateway.ByHeader, gateway.None, gateway.None},
		{gateway.ByMetadata, gateway.FullDuplex, gateway.None},
		{gateway.OverrideHost, gateway.None, gateway.FullDuplex},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", c.request, c.response, c.follow), func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			prefill, decode := s.pool(true)
			s.list(join(prefill, decode)...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: c.follow, RequestBodyMode: c.request, ResponseBodyMode: c.response}, join(prefill, decode)...)

			for i := range 4 {
				r := s.complete(tokens(i, 10*blockSize))
				named(t, r.prefill(), prefill)
				named(t, r.decode(), decode)
			}
			stream := s.ok(s.post("/v1/completions", strings.Replace(completion(tokens(1, 10)), `"max_tokens":1`, `"max_tokens":4,"stream":true`, 1), nil))
			if n := strings.Count(stream.body, "data: "); n != 5 {
				t.Errorf("%d events came, want 5: %s", n, stream.body)
			}
			r, err := send(t, s.client, http.MethodGet, s.url+"/v1/models", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.ok(r)
			if c.request != gateway.None {
				s.sticks(tokens(9, 20*blockSize), prefill)
				wantError(t, s.post("/v1/completions", `{"prompt":[1]}`, nil), http.StatusBadRequest, "missing_model")
			} else if n := s.metric("warmpath_prompt_blocks_total"); n != 0 {
				t.Errorf("%v blocks were counted of prompts that nobody saw", n)
			}
			s.idle()
			s.list()
			wantError(t, s.post("/v1/completions", completion(tokens(1, 40)), nil), http.StatusServiceUnavailable, "no_endpoint")
		})
	}
}

// TestBufferedLimit wants a body over the picker's limit refused where the
// gateway buffers too.
func TestBufferedLimit(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
	s.list(&agg.worker)
	s.startPicker(pickerOptions{server: "maxBodyBytes: 1000"})
	s.startGateway(gateway.Config{RequestBodyMode: gateway.Buffered})
	s.ok(s.post("/v1/completions", padded(1000), nil))
	wantError(t, s.post("/v1/completions", padded(1001), nil), http.StatusRequestEntityTooLarge, "body_too_large")
	if n := agg.count(); n != 1 {
		t.Errorf("%d requests came to the worker, want 1", n)
	}
}
