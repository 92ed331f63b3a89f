package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// pollEvery is the pause between two looks at a condition.
const pollEvery = 50 * time.Millisecond

// errPart says that a part of the stack has ended: waiting longer is no use.
var errPart = errors.New("ended by itself")

// waitReady waits until the frontend serves every worker. Each condition has
// been seen to lag behind the one before it: workers in discovery, model listed,
// chat route there (it answers 404 for up to 2 s more), requests reach the
// worker and the prefill worker that they name.
func (s *Stack) waitReady(ctx context.Context) error {
	conditions := []func(context.Context) error{s.checkDiscovery, s.checkModel, s.checkChatRoute}
	for _, w := range s.workers {
		conditions = append(conditions, func(ctx context.Context) error { return s.checkWorker(ctx, w) })
	}
	for _, check := range conditions {
		if err := poll(ctx, func() error {
			if err := s.checkRunning(); err != nil {
				return err
			}
			// A request that a part loses while it starts is not waited for.
			ctx, cancel := context.WithTimeout(ctx, startTimeout/6)
			defer cancel()
			return check(ctx)
		}); err != nil {
			return err
		}
	}
	return nil
}

// poll calls check until it returns nil or errPart, or until ctx ends. Its error
// is check's last one from before that.
func poll(ctx context.Context, check func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := check()
		if err == nil || errors.Is(err, errPart) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

func (s *Stack) checkRunning() error {
	parts := []*process{s.front}
	for _, w := range s.workers {
		parts = append(parts, w.process)
	}
	for _, p := range parts {
		if !p.running() {
			return fmt.Errorf("%s %w (%s)\n%s", p.name, errPart, p.cmd.ProcessState, p.logTail())
		}
	}
	return nil
}

func (s *Stack) checkDiscovery(context.Context) error {
	have, err := s.registered()
	if err != nil {
		return err
	}
	var want []uint64
	for _, w := range s.workers {
		want = append(want, w.id)
	}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		return fmt.Errorf("discovery has instances %v, want %v", have, want)
	}
	return nil
}

// checkGone asks the frontend which workers it has.
func (s *Stack) checkGone(ctx context.Context, id uint64) error {
	var health struct {
		Instances []struct {
			ID       uint64 `json:"instance_id"`
			Endpoint string `json:"endpoint"`
		} `json:"instances"`
	}
	if err := getJSON(ctx, s.url+"/health", &health); err != nil {
		return err
	}
	if len(health.Instances) == 0 {
		return errors.New("the frontend has no worker at all")
	}
	for _, i := range health.Instances {
		if i.ID == id {
			return fmt.Errorf("the frontend still has worker %d", id)
		}
	}
	return nil
}

// getJSON reads a page, whatever its status.
func getJSON(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

func (s *Stack) checkModel(ctx context.Context) error {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := getJSON(ctx, s.url+"/v1/models", &list); err != nil {
		return err
	}
	for _, m := range list.Data {
		if m.ID == s.Model() {
			return nil
		}
	}
	return fmt.Errorf("/v1/models lists %v, want %s", list.Data, s.Model())
}

// checkChatRoute sends a chat without messages, which is refused without
// touching a worker's cache.
func (s *Stack) checkChatRoute(ctx context.Context) error {
	body := fmt.Sprintf(`{"model":%q,"messages":[]}`, s.Model())
	r, err := post(ctx, s.url+"/v1/chat/completions", nil, []byte(body))
	if err != nil {
		return err
	}
	if r.Status != http.StatusBadRequest {
		return fmt.Errorf("chat without messages answers %d: %s", r.Status, r.Body)
	}
	return nil
}

// checkWorker sends a prompt of one token to a worker (to a prefill worker
// together with any decode worker). No block gets full, so no cache changes and
// no event is published.
func (s *Stack) checkWorker(ctx context.Context, w *worker) error {
	pin := Pin{Worker: fleet.Key{ID: w.id}}
	if prefill := s.Workers(fleet.Prefill); len(prefill) > 0 {
		pin.Prefill = &fleet.Key{ID: prefill[0]}
		if w.role == fleet.Prefill {
			pin.Worker.ID, pin.Prefill.ID = s.Workers(fleet.Decode)[0], w.id
		}
	}
	id := NewRequestID()
	header := pin.Headers(BothNames)
	header.Set(RequestIDHeader, id)
	r, err := Post(ctx, s.url, header, Completion{Model: s.Model(), Prompt: []uint32{'x'}, MaxTokens: 1})
	if err != nil {
		return err
	}
	if r.Status != http.StatusOK {
		return fmt.Errorf("a request for %s answers %d: %s", w.name, r.Status, r.Body)
	}
	runs, err := s.RanOn(id)
	if err != nil {
		return err
	}
	if want := pin.Runs(); !slices.Equal(runs, want) {
		return fmt.Errorf("a request for %s ran on %v, want %v", w.name, runs, want)
	}
	return nil
}
