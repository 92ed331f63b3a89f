package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// TestPrefixesStick installs the chart, and wants everything accepted and a prompt
// to go where it went before.
func TestPrefixesStick(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for i := range 3 {
		s.worker(fmt.Sprintf("worker-%d", i), fleet.Aggregated, nil)
	}
	s.start()
	s.policyIs("Accepted", "ResolvedRefs", "RolesResolved", "EventPlaneHealthy")
	p := s.pickers[0]
	p.sees(3)

	const prompts, blocks, repeats = 5, 4, 3
	before := p.metric("warmpath_decisions_total")
	first := make([]string, prompts)
	for i := range prompts {
		first[i] = s.complete(tokens(i, blocks)).decode()
	}
	p.knowsAll()
	for range repeats {
		for i := range prompts {
			s.idle()
			r := s.complete(append(tokens(i, blocks), tokens(100+i, 1)...))
			if r.decode() != first[i] {
				t.Errorf("prompt %d went to %s, and before to %s", i, r.decode(), first[i])
			}
			if got := r.cached(t); got < blocks*blockSize {
				t.Errorf("prompt %d: %d tokens were cached, want %d", i, got, blocks*blockSize)
			}
		}
	}
	if n := p.metric("warmpath_decisions_total") - before; n != prompts*(1+repeats) {
		t.Errorf("the picker made %v decisions for %d requests", n, prompts*(1+repeats))
	}
	if n := p.metric("warmpath_served_elsewhere_total"); n != 0 {
		t.Errorf("the gateway sent %v requests elsewhere", n)
	}
	s.policyIs("PrefixAware", "Ready")
}

// TestPrefillHeader wants the decode worker to be told of the prefill worker.
func TestPrefillHeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	prefill, decode := map[string]*worker{}, map[string]*worker{}
	for i := range 2 {
		w := s.worker(fmt.Sprintf("prefill-%d", i), fleet.Prefill, nil)
		prefill[w.name] = w
		w = s.worker(fmt.Sprintf("decode-%d", i), fleet.Decode, nil)
		decode[w.name] = w
	}
	s.start()
	s.pickers[0].sees(4)
	for i := range 4 {
		r := s.complete(tokens(i, 5))
		p, d := prefill[r.prefill()], decode[r.decode()]
		if p == nil || d == nil {
			t.Fatalf("prefilled by %q, decoded by %q", r.prefill(), r.decode())
		}
		if got, want := d.Stats().LastPrefillHeader, "x-prefiller-host-port: "+p.addr.String(); got != want {
			t.Errorf("%s got %q, want %q", d.name, got, want)
		}
	}
	status := s.policy().Status
	eventually(t, "the status counts the workers", func() error {
		if status = s.policy().Status; status.Workers == nil || status.Workers.Prefill != 2 || status.Workers.Decode != 2 {
			return fmt.Errorf("it says %+v", status.Workers)
		}
		return nil
	})
	for _, w := range prefill {
		if n := w.Stats().Misdirected; n != 0 {
			t.Errorf("%s got %d requests of the other role", w.name, n)
		}
	}
}

// TestPodsComeAndGo wants a pod to be used while it is there and ready. Istio keeps a
// pod that is not ready among the endpoints, so this is the picker's doing.
func TestPodsComeAndGo(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.worker("a", fleet.Aggregated, nil)
	s.worker("b", fleet.Aggregated, nil)
	s.start()
	p := s.pickers[0]
	p.sees(2)
	prompt := tokens(1, 4)
	held := s.complete(prompt).decode()
	other := map[string]string{"a": "b", "b": "a"}[held]
	p.knowsAll()
	goTo := func(what string, want ...string) {
		t.Helper()
		for range 5 {
			s.idle()
			if r := s.complete(prompt); !slices.Contains(want, r.decode()) {
				t.Errorf("%s: a request went to %s, want %v", what, r.decode(), want)
			}
		}
	}
	goTo("both are ready", held)
	mesh.cluster.SetReady(t, s.ns, held, false)
	p.sees(1)
	goTo(held+" is not ready", other)
	mesh.cluster.SetReady(t, s.ns, held, true)
	p.sees(2)
	mesh.cluster.DeletePod(t, s.ns, held)
	p.sees(1)
	goTo(held+" is gone", other)
	s.worker("c", fleet.Aggregated, nil)
	p.sees(2)
	mesh.cluster.DeletePod(t, s.ns, other)
	p.sees(1)
	// Envoy learns of the new pod on a way of its own.
	eventually(t, "c serves", func() error {
		r, err := s.send("/v1/completions", completion(prompt))
		if err == nil && r.decode() != "c" {
			err = fmt.Errorf("answer %d, %q served", r.status, r.decode())
		}
		return err
	})
	goTo("c alone is left", "c")
}

// TestServedElsewhere takes a worker away that Kubernetes takes for ready: the gateway
// sends the request to another one, and the picker counts that.
func TestServedElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	workers := map[string]*worker{"a": s.worker("a", fleet.Aggregated, nil), "b": s.worker("b", fleet.Aggregated, nil)}
	s.start()
	p := s.pickers[0]
	p.sees(2)
	prompt := tokens(1, 4)
	held := s.complete(prompt).decode()
	other := map[string]string{"a": "b", "b": "a"}[held]
	p.knowsAll()
	s.idle()
	if r := s.complete(prompt); r.decode() != held {
		t.Fatalf("%s has the prompt, but %s was picked", held, r.decode())
	}
	if n := p.metric("warmpath_served_elsewhere_total"); n != 0 {
		t.Errorf("%v requests were served elsewhere", n)
	}
	workers[held].stop()
	s.idle()
	if r := s.complete(prompt); r.decode() != other {
		t.Errorf("served by %s", r.decode())
	}
	eventually(t, "the request is counted", func() error {
		if n := p.metric("warmpath_served_elsewhere_total"); n != 1 {
			return fmt.Errorf("the count is %v", n)
		}
		return nil
	})
}
