package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestBadRequests wants a clear refusal of what cannot be used, and no request
// of it at a worker.
func TestBadRequests(t *testing.T) {
	for _, f := range follows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const limit = 100_000
			s := newStack(t)
			agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
			s.list(&agg.worker)
			s.startPicker(pickerOptions{server: fmt.Sprintf("maxBodyBytes: %d", limit)})
			s.startGateway(gateway.Config{Follow: f.mode}, &agg.worker)

			const chat, plain = "/v1/chat/completions", "/v1/completions"
			for _, c := range []struct{ path, body, code string }{
				{plain, `{"model":"m","prompt":[1,2`, "invalid_json"},
				{plain, `not json at all`, "invalid_json"},
				{plain, "{\"model\":\"m\",\"prompt\":\"\x00\"}", "invalid_json"},
				{chat, strings.Repeat("[", 20_000), "invalid_json"},
				{plain, `{"model":"m","prompt":[1]} {}`, "invalid_json"},
				{plain, `[]`, "invalid_type"},
				{plain, `"text"`, "invalid_type"},
				{plain, `{"model":7,"prompt":[1]}`, "invalid_type"},
				{plain, `{"model":"m","prompt":{"a":1}}`, "invalid_type"},
				{plain, `{"model":"m","prompt":[1,"a"]}`, "invalid_type"},
				{plain, `{"model":"m","prompt":[-1]}`, "invalid_type"},
				{plain, `{"model":"m","prompt":[1.5]}`, "invalid_type"},
				{plain, `{"model":"m","prompt":[4294967296]}`, "invalid_type"},
				{chat, `{"model":"m","messages":"hello"}`, "invalid_type"},
				{chat, `{"model":"m","messages":["hello"]}`, "invalid_type"},
				{plain, `{"prompt":[1]}`, "missing_model"},
				{plain, `{"model":"","prompt":[1]}`, "missing_model"},
				{chat, `{"messages":[{"role":"user","content":"hello"}]}`, "missing_model"},
				{plain, `{"model":"m"}`, "missing_prompt"},
				{plain, `{"model":"m","prompt":[]}`, "missing_prompt"},
				{chat, `{"model":"m","messages":[]}`, "missing_prompt"},
				{chat, `{"model":"m","prompt":[1]}`, "missing_prompt"},
				{plain, ``, "empty_body"},
				{plain, ` `, "empty_body"},
			} {
				r := s.post(c.path, c.body, nil)
				wantError(t, r, http.StatusBadRequest, c.code)
				if t.Failed() {
					t.Fatalf("that was %s %s", c.path, c.body)
				}
			}
			// The limit is to the byte, with and without a content-length.
			for _, body := range []func(string) io.Reader{
				func(s string) io.Reader { return strings.NewReader(s) },
				func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) },
			} {
				before := agg.count()
				for n, want := range map[int]int{limit: 200, limit + 1: 413, 50 * limit: 413} {
					r, err := send(t, s.client, http.MethodPost, s.url+plain, body(padded(n)), nil)
					if err != nil {
						t.Fatal(err)
					}
					if want == http.StatusOK {
						s.ok(r)
					} else {
						wantError(t, r, want, "body_too_large")
					}
				}
				if n := agg.count() - before; n != 1 {
					t.Errorf("%d of the bodies around the limit reached the worker, want 1", n)
				}
			}
			// A path that carries no prompt has no limit: its body is not kept.
			s.ok(s.post("/v1/files", random(3*limit), nil))
			if n := agg.count(); n != 3 {
				t.Errorf("%d requests reached the worker, want 3", n)
			}
			s.idle()
		})
	}
}

// TestOtherPaths wants everything else passed on to a worker, with its answer.
func TestOtherPaths(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(2, "agg", fleet.Aggregated)
	s.list(agg...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	ask := func(method, path, body string) reply {
		t.Helper()
		var reader io.Reader
		if body != "" {
			reader = strings.NewReader(body)
		}
		r, err := send(t, s.client, method, s.url+path, reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range [][3]string{
		{http.MethodGet, "/nowhere"},
		{http.MethodPost, "/nowhere", "{}"},
		{http.MethodPost, "/nowhere", "no json"},
		{http.MethodPut, "/v1/files/1", "x"},
		{http.MethodDelete, "/v1/files/1"},
		{http.MethodPost, "/v1/completion", "{}"},
	} {
		if r := ask(c[0], c[1], c[2]); r.status != http.StatusNotFound || !strings.Contains(r.body, `"NotFoundError"`) {
			t.Errorf("%s %s: %d %s, want the worker's 404", c[0], c[1], r.status, r.body)
		}
	}
	if r := ask(http.MethodHead, "/health", ""); r.status != 200 || r.body != "" {
		t.Errorf("HEAD /health: %d %q", r.status, r.body)
	}
	var models struct{ Data []struct{ ID string } }
	r := s.ok(ask(http.MethodGet, "/v1/models", ""))
	if err := json.Unmarshal([]byte(r.body), &models); err != nil || len(models.Data) != 1 || models.Data[0].ID != model {
		t.Errorf("models %s, %v", r.body, err)
	}
	// The worker's own errors come through as they are.
	if r := s.post("/v1/completions", `{"model":"other","prompt":[1,2,3]}`, nil); r.status != http.StatusNotFound || !strings.Contains(r.body, "The model `other` does not exist.") {
		t.Errorf("unknown model: %d %s", r.status, r.body)
	}
	if r := s.post("/v1/completions", `{"model":"`+model+`","prompt":[1,2,3],"max_tokens":-1}`, nil); r.status != http.StatusBadRequest || !strings.Contains(r.body, "BadRequestError") {
		t.Errorf("negative max_tokens: %d %s", r.status, r.body)
	}
	s.idle()
}

// TestPoolComesAndGoes empties the list of workers and fills it again while the
// picker runs. A list that cannot be read changes nothing.
func TestPoolComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(1, "agg", fleet.Aggregated)
	s.list()
	s.startPickerUnready(pickerOptions{})
	s.startGateway(gateway.Config{})
	body := completion(tokens(1, 100))
	refused := func() {
		t.Helper()
		wantError(t, s.post("/v1/completions", body, nil), http.StatusServiceUnavailable, "no_endpoint")
		if r := get(t, s.admin+"/readyz"); r.status != 503 || !strings.Contains(r.body, "no ready worker") {
			t.Errorf("/readyz says %d %s", r.status, r.body)
		}
	}
	s.picker.awaitLog(t, "pool changed")
	refused()
	for range 2 {
		s.list(agg...)
		s.ok(s.post("/v1/completions", body, nil))
		s.list()
		refused()
	}
	s.list(agg...)
	if err := writeFile(s.dir, "workers.yaml", "workers: [{name: half"); err != nil {
		t.Fatal(err)
	}
	s.picker.awaitLog(t, "worker list not usable, keeping the last good one")
	s.ok(s.post("/v1/completions", body, nil))
	// Only workers that cannot decode.
	s.list(s.sim("prefill-0", fleet.Prefill))
	wantError(t, s.post("/v1/completions", body, nil), http.StatusServiceUnavailable, "no_endpoint")
	if n := agg[0].stats(t).Requests; n != 3 {
		t.Errorf("%d requests reached the worker, want 3", n)
	}
	s.idle()
}

// TestValidate wants the same binary to check a configuration.
func TestValidate(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.list(&newRecorder(t, "agg-0", fleet.Aggregated, 1, nil).worker)
	s.startPicker(pickerOptions{})
	good := start(t, "validate", nil, eppBinary, "validate", "--config", s.dir+"/epp.yaml")
	good.wait(t)
	if !strings.Contains(good.stdout.String(), "is valid: 0 prefill, 0 decode, 1 aggregated") {
		t.Errorf("it says %q", good.stdout.String())
	}
	config := "apiVersion: routing.warmpath.dev/v1alpha1\nkind: EndpointPickerConfig\nspec:\n  blockSise: 16\n"
	if err := writeFile(s.dir, "bad.yaml", config); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"validate", "--config", s.dir + "/bad.yaml"}, {"--config", s.dir + "/bad.yaml"}} {
		bad := start(t, "bad", nil, append([]string{eppBinary}, command...)...)
		await(t, "it has ended", bad.done)
		if code := bad.cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("exit status %d, want 1", code)
		}
		for _, part := range []string{"bad.yaml", "4", "blockSise"} {
			if !strings.Contains(bad.stderr.String(), part) {
				t.Errorf("%q does not say %q", bad.stderr.String(), part)
			}
		}
	}
}
