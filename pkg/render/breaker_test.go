package render

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// transport answers in place of the network, so that a test can run on
// synctest's clock.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBreakerOverTime walks a breaker through closed, open, half-open and closed
// again. time.Sleep here moves the bubble's clock and waits for nothing.
func TestBreakerOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, healthy := 0, false
		c, err := New(Config{
			URLs:            []string{"http://engine"},
			Timeout:         time.Second,
			BreakerFailures: 3,
			BreakerCooldown: time.Minute,
			HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				calls++
				if !healthy {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"token_ids":[1]}`)), Request: r}, nil
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(want error, wantCalls int, wantTook time.Duration) {
			t.Helper()
			start := time.Now()
			_, err := c.Tokens(t.Context(), nil, prompt.Chat, chatBody)
			if wantTook > 0 {
				wantTook += time.Duration(len(chatBody)) * perByte
			}
			if !errors.Is(err, want) || calls != wantCalls || time.Since(start) != wantTook {
				t.Errorf("error %v after %v, %d calls; want %v after %v, %d calls", err, time.Since(start), calls, want, wantTook, wantCalls)
			}
		}
		state := func(want string) {
			t.Helper()
			if got := c.Stats().Engines[0].Breaker; got != want {
				t.Errorf("breaker is %s, want %s", got, want)
			}
		}
		for i := range 3 {
			ask(ErrTimeout, i+1, time.Second)
		}
		state("open")
		ask(ErrOpen, 3, 0)
		time.Sleep(time.Minute - time.Second)
		ask(ErrOpen, 3, 0)
		time.Sleep(2 * time.Second)
		state("half-open")
		ask(ErrTimeout, 4, time.Second) // one trial, failed: paused again
		ask(ErrOpen, 4, 0)
		time.Sleep(time.Minute + time.Second)
		healthy = true
		ask(nil, 5, 0)
		state("closed")
		ask(nil, 6, 0)
		if s := c.Stats(); s.Engines[0].Busy != 4*(time.Second+time.Duration(len(chatBody))*perByte) || s.Failures["timeout"] != 4 || s.Failures["breaker_open"] != 3 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestHalfOpenSurvivesACallerGivingUp: a trial that its caller abandons must not
// use up the one trial there is.
func TestHalfOpenSurvivesACallerGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
		c, err := New(Config{
			URLs: []string{"http://engine"}, BreakerFailures: 1, BreakerCooldown: time.Minute,
			HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) { return answer(r) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, c, ErrUnavailable, "unavailable")
		time.Sleep(time.Minute + time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		answer = func(r *http.Request) (*http.Response, error) { cancel(); return nil, r.Context().Err() }
		if _, err := c.Tokens(ctx, nil, prompt.Chat, chatBody); Reason(err) != "canceled" {
			t.Errorf("got %v", err)
		}
		answer = func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"token_ids":[1]}`)), Request: r}, nil
		}
		wantTokens(t, c, prompt.Chat, chatBody, 1)
	})
}
