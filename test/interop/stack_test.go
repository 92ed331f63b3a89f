package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

const blockSize = 16

// forEachVersion runs a test per Dynamo release.
func forEachVersion(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	forVersions(t, Versions, test)
}

// forVersions runs a test per release, some at a time: parts mostly wait.
func forVersions(t *testing.T, versions []string, test func(t *testing.T, version string)) {
	t.Helper()
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// facts is what differs between releases (dynamo-live.md sections 1 and 4).
type facts struct {
	endpointScope bool // subjects name the endpoint
	newNames      bool // headers x-dynamo-* are honoured
	noWorker      int  // status of a request that names no worker
	noSuchWorker  int  // status of one that names an unknown worker
	reportsReuse  bool // usage has cached_tokens

	workersTellPrefill bool // workers publish the end of a prefill
}

var releases = map[string]facts{
	"1.2.1": {noWorker: http.StatusInternalServerError, noSuchWorker: http.StatusInternalServerError},
	"1.3.1": {newNames: true, noWorker: http.StatusBadRequest, noSuchWorker: http.StatusInternalServerError},
	"1.4.2": {newNames: true, noWorker: http.StatusBadRequest, noSuchWorker: http.StatusInternalServerError, endpointScope: true},
	"1.5.1": {newNames: true, noWorker: http.StatusBadRequest, noSuchWorker: http.StatusBadRequest, endpointScope: true, reportsReuse: true, workersTellPrefill: true},
	"1.6.1": {newNames: true, noWorker: http.StatusBadRequest, noSuchWorker: http.StatusBadRequest, endpointScope: true, reportsReuse: true, workersTellPrefill: true},
}

// kvSubject is the subject that a component's KV events come on.
func kvSubject(version, component string) string {
	scope := "namespace.dynamo.component." + component
	if releases[version].endpointScope {
		scope += ".endpoint.generate"
	}
	return scope + ".kv-events"
}

// generations are the header names that a release must honour.
func generations(version string) []Generation {
	if !releases[version].newNames {
		return []Generation{OldNames, BothNames}
	}
	return []Generation{OldNames, NewNames, BothNames}
}

// prompt returns five full blocks and a tail of three tokens, so that a few
// tokens of output fill no block.
func prompt(seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make([]uint32, 5*blockSize+3)
	for i := range p {
		p[i] = uint32(r.IntN(256))
	}
	return p
}

// refused posts a short prompt and checks that the frontend refuses it.
func refused(t *testing.T, s *Stack, header http.Header, status int) {
	t.Helper()
	r, err := Post(t.Context(), s.FrontendURL(), header, Completion{Model: s.Model(), Prompt: []uint32{'x'}, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != status {
		t.Errorf("headers %v: status %d, want %d: %s", header, r.Status, status, r.Body)
	}
}

// send posts a prompt with a pin and checks that it ran there and nowhere else. The
// answer fills no block.
func send(t *testing.T, s *Stack, pin Pin, g Generation, prompt []uint32) Reply {
	t.Helper()
	return sendLong(t, s, pin, g, prompt, 4)
}

// sendLong does what send does, with an answer of so many tokens.
func sendLong(t *testing.T, s *Stack, pin Pin, g Generation, prompt []uint32, maxTokens int) Reply {
	t.Helper()
	id := NewRequestID()
	header := pin.Headers(g)
	header.Set(RequestIDHeader, id)
	r, err := Post(t.Context(), s.FrontendURL(), header, Completion{Model: s.Model(), Prompt: prompt, MaxTokens: maxTokens})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != http.StatusOK {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	if r.ID != id {
		t.Errorf("response id %q, want %q", r.ID, id)
	}
	if r.PromptTokens != len(prompt) {
		t.Errorf("the engine saw %d prompt tokens, want %d", r.PromptTokens, len(prompt))
	}
	runs, err := s.RanOn(id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pin.Runs(), runs); diff != "" {
		t.Errorf("headers %v: ran on (-want +got):\n%s", header, diff)
	}
	return r
}

// expect is what workers must hold after the prompts sent to them.
type expect map[fleet.Key]map[block.Chain]bool

func (e expect) add(key fleet.Key, prompt []uint32) {
	if e[key] == nil {
		e[key] = map[block.Chain]bool{}
	}
	for _, c := range Chains(prompt, blockSize) {
		e[key][c] = true
	}
}

// wait waits until the events say exactly what is expected, on one subject.
func (e expect) wait(t *testing.T, r *Recorder, subject string) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	err := poll(ctx, func() error {
		l := ReadLedger(r.Events())
		if len(l.Lost) > 0 {
			t.Fatalf("events: %q", l.Lost)
		}
		if diff := cmp.Diff(map[fleet.Key]map[block.Chain]bool(e), l.Held); diff != "" {
			return fmt.Errorf("held blocks (-want +got):\n%s", diff)
		}
		if got := slices.Sorted(maps.Keys(l.Events)); !slices.Equal(got, []string{subject}) {
			t.Fatalf("events on subjects %q, want only %q", got, subject)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStackAnswers(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		url := StartNATS(t)
		events := Record(t, url, "kv-events")
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: url, BlockSize: blockSize, Ranks: 2,
			Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		if got := events.Events(); len(got) > 0 {
			t.Fatalf("%d KV events before the first request", len(got))
		}

		want, seed := expect{}, uint64(0)
		for _, id := range s.Workers(fleet.Aggregated) {
			for rank := range uint32(2) {
				for _, g := range generations(version) {
					key := fleet.Key{ID: id, Rank: rank}
					seed++
					send(t, s, Pin{Worker: key}, g, prompt(seed))
					want.add(key, prompt(seed))
				}
			}
		}
		want.wait(t, events, kvSubject(version, "backend"))

		// The rank that holds the last prompt reuses it all.
		last := fleet.Key{ID: s.Workers(fleet.Aggregated)[1], Rank: 1}
		reuse := 0
		if releases[version].reportsReuse {
			reuse = 5 * blockSize
		}
		if r := send(t, s, Pin{Worker: last}, BothNames, prompt(seed)); r.CachedTokens != reuse {
			t.Errorf("a repeat reuses %d tokens, want %d", r.CachedTokens, reuse)
		}

		// A frontend in direct mode picks no worker itself.
		release := releases[version]
		refused(t, s, nil, release.noWorker)
		refused(t, s, Pin{Worker: fleet.Key{ID: 1}}.Headers(BothNames), release.noSuchWorker)
		if !release.newNames {
			refused(t, s, Pin{Worker: last}.Headers(NewNames), release.noWorker)
		}
	})
}

func TestDisaggregatedStack(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		url := StartNATS(t)
		events := Record(t, url, "kv-events")
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: url, BlockSize: blockSize,
			Roles: map[fleet.Role]int{fleet.Prefill: 2, fleet.Decode: 2},
		})

		want, seed := expect{}, uint64(100)
		for _, prefill := range s.Workers(fleet.Prefill) {
			for _, decode := range s.Workers(fleet.Decode) {
				for _, g := range generations(version) {
					key := fleet.Key{ID: prefill}
					seed++
					send(t, s, Pin{Worker: fleet.Key{ID: decode}, Prefill: &key}, g, prompt(seed))
					want.add(key, prompt(seed))
				}
			}
		}
		// Nothing of this from component backend: decode workers publish no events.
		want.wait(t, events, kvSubject(version, "prefill"))

		// Half a pair is refused: the reason why a picker always names both.
		decode := Pin{Worker: fleet.Key{ID: s.Workers(fleet.Decode)[0]}}
		refused(t, s, decode.Headers(BothNames), http.StatusInternalServerError)
	})
}
