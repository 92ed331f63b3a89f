package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// chain is the whole way of a request: Envoy, the picker, a worker's endpoint,
// Dynamo's frontend, Dynamo's workers.
type chain struct {
	stack    *Stack
	events   *Recorder
	sidecars map[uint64]*Sidecar
	picker   *Picker
	url      string // of Envoy
}

// chainVersions are the releases that run behind Envoy. What reaches the workers is
// the same in those between.
var chainVersions = []string{Versions[0], Versions[len(Versions)-1]}

func startChain(t *testing.T, cfg StackConfig) *chain {
	t.Helper()
	c := &chain{}
	cfg.NATSURL, cfg.BlockSize, cfg.Blocks = StartNATS(t), blockSize, 128
	c.events = Record(t, cfg.NATSURL, "kv-events")
	c.stack = StartStack(t, cfg)
	c.sidecars = StartSidecars(t, c.stack)
	picker := PickerConfig{Binary: pickerBinary(t), Sidecars: c.sidecars}
	if cfg.ServeFiles {
		picker.Tokenizer = c.stack.inProcess(t)
	}
	c.picker = StartPicker(t, c.stack, picker)

	envoy, err := gateway.InstallEnvoy(t.Context(), cachedir.Path(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.Context(), which ends before the cleanup that stops Envoy.
	front, err := gateway.StartEnvoy(context.WithoutCancel(t.Context()), envoy, gateway.Config{Picker: c.picker.ExtProc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := front.Stop(); err != nil {
			t.Errorf("envoy: %v", err)
		}
	})
	c.url = "http://" + front.Addr().String()
	return c
}

// sendPrompt sends token ids, see send.
func (c *chain) sendPrompt(ctx context.Context, header http.Header, prompt []uint32) (Pin, error) {
	return c.send(ctx, header, Completion{Model: c.stack.Model(), Prompt: prompt, MaxTokens: 4}, len(prompt))
}

// send posts a request of n prompt tokens to Envoy and returns the picker's
// choice as its headers tell it, once it is certain that the chosen workers ran
// the request.
func (c *chain) send(ctx context.Context, header http.Header, q Request, n int) (Pin, error) {
	r, err := Post(ctx, c.url, header, q)
	if err != nil {
		return Pin{}, err
	}
	if r.Status != http.StatusOK {
		return Pin{}, fmt.Errorf("status %d: %s", r.Status, r.Body)
	}
	if r.PromptTokens != n {
		return Pin{}, fmt.Errorf("the engine saw %d prompt tokens, want %d", r.PromptTokens, n)
	}
	if r.ID == "" || r.ID == header.Get(RequestIDHeader) {
		return Pin{}, fmt.Errorf("request id %q, want one of the picker's", r.ID)
	}
	pin, err := c.pinOf(r.ID)
	if err != nil {
		return Pin{}, err
	}
	runs, err := c.stack.RanOn(r.ID)
	if err != nil {
		return Pin{}, err
	}
	if diff := cmp.Diff(pin.Runs(), runs); diff != "" {
		return Pin{}, fmt.Errorf("ran on (-picked +got):\n%s", diff)
	}
	return pin, nil
}

// pinOf finds the request at the one endpoint that it was sent to, and reads
// the pick from its headers: both generations, and the endpoint of the worker
// that they name.
func (c *chain) pinOf(id string) (Pin, error) {
	for _, s := range c.sidecars {
		h, ok := s.Request(id)
		if !ok {
			continue
		}
		pin, err := parsePin(h)
		if err != nil {
			return Pin{}, err
		}
		if pin.Worker.ID != s.Worker {
			return Pin{}, fmt.Errorf("the endpoint of %d got a request for %d", s.Worker, pin.Worker.ID)
		}
		mode := "aggregated"
		if pin.Prefill != nil {
			mode = "disaggregated"
		}
		if got := h.Get("x-dynamo-routing-mode"); got != mode {
			return Pin{}, fmt.Errorf("routing mode %q, want %q", got, mode)
		}
		return pin, nil
	}
	return Pin{}, fmt.Errorf("no endpoint got the request %s", id)
}

// parsePin reads a pick from headers, which must hold both generations of names
// with equal values, each once.
func parsePin(h http.Header) (Pin, error) {
	number := func(name string, bits int) (uint64, error) {
		before, now := h.Values("x-"+name), h.Values("x-dynamo-"+name)
		if len(before) != 1 || !slices.Equal(before, now) {
			return 0, fmt.Errorf("header %s: %q and %q, want one value each, the same", name, before, now)
		}
		return strconv.ParseUint(before[0], 10, bits)
	}
	key := func(id, rank string) (fleet.Key, error) {
		i, errID := number(id, 64)
		r, errRank := number(rank, 32)
		return fleet.Key{ID: i, Rank: uint32(r)}, errors.Join(errID, errRank)
	}
	worker, err := key("worker-instance-id", "dp-rank")
	if err != nil {
		return Pin{}, err
	}
	if h.Values("x-prefill-instance-id") == nil {
		return Pin{Worker: worker}, nil
	}
	prefill, err := key("prefill-instance-id", "prefill-dp-rank")
	return Pin{Worker: worker, Prefill: &prefill}, err
}

// holder is the rank whose cache a request with this pick fills.
func (p Pin) holder() fleet.Key {
	if p.Prefill != nil {
		return *p.Prefill
	}
	return p.Worker
}

// waitIndex waits until the picker's index, the workers' events and, unless nil,
// the prompts sent tell the same.
func (c *chain) waitIndex(t *testing.T, want expect, subject string) *Ledger {
	t.Helper()
	if want != nil {
		want.wait(t, c.events, subject)
	}
	return waitIndex(t, c.picker, c.events)
}

const (
	minGroups = 6
	maxGroups = 15                  // all of them fit into one rank's cache
	sharing   = 3                   // requests per group after the first
	prefixed  = 5 * blockSize       // tokens that a group shares
	others    = uint64(1_000_000)   // seeds of prompts outside the groups
	forged    = "18446744073709551" // a worker id that no worker has
)

// groupPrompt returns the i-th prompt of a group: five shared blocks; from i = 1
// one more block that no other prompt has; a tail.
func groupPrompt(group, i uint64) []uint32 {
	p := prompt(group)[:prefixed]
	if i > 0 {
		p = append(p, prompt(others + group*100 + i)[:blockSize]...)
	}
	return append(p, 1, 2, 3)
}

// run drives one deployment through the cases. component is the one whose
// workers publish events.
func (c *chain) run(t *testing.T, component, version string, ranks int) {
	subject := kvSubject(version, component)
	want, home := expect{}, map[uint64]fleet.Key{}
	mustSend := func(header http.Header, prompt []uint32) Pin {
		t.Helper()
		pin, err := c.sendPrompt(t.Context(), header, prompt)
		if err != nil {
			t.Fatal(err)
		}
		return pin
	}
	// Equal workers share the groups by chance. With all groups on one rank the
	// rest would show nothing.
	for g := uint64(0); g < minGroups || len(want) < 2; g++ {
		if g == maxGroups {
			t.Fatalf("%d groups of prompts were all picked for %s", g, home[0])
		}
		pin := mustSend(nil, groupPrompt(g, 0))
		home[g] = pin.holder()
		want.add(pin.holder(), groupPrompt(g, 0))
	}
	c.waitIndex(t, want, subject)

	// With nothing else to do for any worker, the one that holds a prefix is the
	// best. What clients say about routing changes nothing. In mixed order, lest a
	// picker that goes round the workers look right.
	for _, n := range rand.New(rand.NewPCG(1, 1)).Perm(len(home) * sharing) {
		g, i := uint64(n/sharing), uint64(n%sharing)+1
		c.picker.waitIdle(t)
		pin := mustSend(forgedHeaders(), groupPrompt(g, i))
		if pin.holder() != home[g] {
			t.Errorf("request %d of group %d was picked for %s, want %s, which holds its prefix", i, g, pin.holder(), home[g])
		}
		want.add(pin.holder(), groupPrompt(g, i))
	}
	c.waitIndex(t, want, subject)

	// A chat cannot be tokenized here: it is placed by load alone, and the pick
	// reaches the workers all the same.
	chat := Chat{Model: c.stack.Model(), MaxTokens: 4, Messages: []Message{{Role: "user", Content: strings.Repeat("eight by", 8)}}}
	pin, err := c.send(t.Context(), nil, chat, len(chat.Tokens()))
	if err != nil {
		t.Fatal(err)
	}
	want.add(pin.holder(), chat.Tokens())
	c.waitIndex(t, want, subject)

	// More blocks than all caches together have: something must go.
	const perPrompt = prefixed / blockSize
	n := len(c.stack.Workers(fleet.Aggregated)) + len(c.stack.Workers(fleet.Prefill))
	work := errgroup.Group{}
	work.SetLimit(8)
	for seed := range n*ranks*c.stack.cfg.Blocks/perPrompt + 1 {
		work.Go(func() error {
			_, err := c.sendPrompt(t.Context(), nil, prompt(2*others+uint64(seed)))
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		if c.waitIndex(t, nil, subject).Removed == 0 {
			return errors.New("no worker has removed a block")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.checkEndpoints(t)
}

// forgedHeaders are what a client might send to choose its workers itself.
func forgedHeaders() http.Header {
	h := http.Header{}
	for _, name := range []string{"worker-instance-id", "dp-rank", "prefill-instance-id", "prefill-dp-rank"} {
		h.Set("x-"+name, forged)
		h.Set("x-dynamo-"+name, forged)
	}
	h.Set("x-gateway-destination-endpoint", "127.0.0.1:1")
	h.Set("x-prefiller-host-port", "127.0.0.1:1")
	h.Set("x-dynamo-routing-mode", "forged")
	h.Set(RequestIDHeader, NewRequestID())
	return h
}

// checkEndpoints checks that every request carried an id of the picker's, and
// that none was sent to a prefill worker's endpoint.
func (c *chain) checkEndpoints(t *testing.T) {
	t.Helper()
	for id, s := range c.sidecars {
		named, unnamed := s.Count()
		if unnamed > 0 {
			t.Errorf("the endpoint of %d got %d requests without %s", id, unnamed, RequestIDHeader)
		}
		if slices.Contains(c.stack.Workers(fleet.Prefill), id) && named > 0 {
			t.Errorf("the endpoint of prefill worker %d got %d requests", id, named)
		}
	}
}

func TestChainAggregated(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		const ranks = 2
		c := startChain(t, StackConfig{
			Version: version, Ranks: ranks, Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		c.run(t, "backend", version, ranks)
	})
}

func TestChainDisaggregated(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		c := startChain(t, StackConfig{
			Version: version, Roles: map[fleet.Role]int{fleet.Prefill: 2, fleet.Decode: 2},
		})
		c.run(t, "prefill", version, 1)
	})
}
