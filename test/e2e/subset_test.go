package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestSubset wants the gateway's restriction kept strictly, in both shapes.
func TestSubset(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			agg := s.sims(3, "agg", fleet.Aggregated)
			six := s.sim("agg-v6", fleet.Aggregated, "--listen", "[::1]:0")
			workers := append(agg, six)
			s.list(workers...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: f.mode, SubsetHeader: true}, workers...)
			a, b, c := agg[0].addr(), agg[1].addr(), agg[2].addr()
			if !strings.HasPrefix(six.addr(), "[::1]:") {
				t.Fatalf("the IPv6 worker is at %s", six.addr())
			}

			const list, text = gateway.SubsetListHeader, gateway.SubsetStringHeader
			for name, c := range map[string]struct {
				header, value string
				want          []string // workers
			}{
				"list of one":            {list, b, []string{"agg-1"}},
				"string of one":          {text, b, []string{"agg-1"}},
				"list of two":            {list, a + "," + c, []string{"agg-0", "agg-2"}},
				"string of two":          {text, a + "," + c, []string{"agg-0", "agg-2"}},
				"string with spaces":     {text, " " + a + " , " + b, []string{"agg-0", "agg-1"}},
				"some are unknown":       {text, "10.1.2.3:80,garbage," + c, []string{"agg-2"}},
				"IPv6 in a list":         {list, six.addr(), []string{"agg-v6"}},
				"IPv6 in a string":       {text, "10.1.2.3:80," + six.addr(), []string{"agg-v6"}},
				"address without a port": {text, "::1", []string{"agg-v6"}},
			} {
				for i := range 6 {
					r := s.ok(s.post("/v1/completions", completion(tokens(i, 40)), http.Header{c.header: {c.value}}))
					ok := false
					for _, w := range c.want {
						ok = ok || r.header.Get("x-sim-worker") == w
					}
					if !ok {
						t.Errorf("%s: %s served, want one of %v", name, r.header.Get("x-sim-worker"), c.want)
					}
				}
			}
			served := 0
			for _, w := range workers {
				served += int(w.stats(t).Requests)
			}
			for _, h := range []http.Header{{list: {"10.1.2.3:80"}}, {text: {"10.1.2.3:80,10.1.2.4:80"}}, {text: {"garbage"}}} {
				wantError(t, s.post("/v1/completions", completion(tokens(1, 40)), h), 503, "no_endpoint_in_subset")
				wantError(t, s.post("/v1/embeddings", "{}", h), 503, "no_endpoint_in_subset")
				r, err := send(t, s.client, http.MethodGet, s.url+"/v1/models", nil, h)
				if err != nil {
					t.Fatal(err)
				}
				wantError(t, r, 503, "no_endpoint_in_subset")
			}
			for _, w := range workers {
				served -= int(w.stats(t).Requests)
			}
			if served != 0 {
				t.Errorf("%d refused requests reached a worker", -served)
			}
			s.awaitMetric(9, "warmpath_refusals_total", `code="no_endpoint_in_subset"`)
		})
	}
}
