package render

import (
	"errors"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt"
)

func TestTokensFrom(t *testing.T) {
	a, b, down := newFake(t, vllm), newFake(t, text(`{"token_ids":[9]}`)), newFake(t, status(500))
	c := newClient(t, Config{URLs: []string{a.URL, b.URL, down.URL}, BreakerFailures: 1})
	if got := c.Engines(); !slices.Equal(got, []string{a.URL, b.URL, down.URL}) {
		t.Errorf("engines %v", got)
	}
	for range 3 {
		for url, want := range map[string][]uint32{a.URL: {1, 2, 3}, b.URL: {9}} {
			if got, err := c.TokensFrom(t.Context(), url, nil, prompt.Chat, chatBody); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		}
	}
	for i, want := range []error{ErrUnavailable, ErrOpen} {
		got, err := c.TokensFrom(t.Context(), down.URL, []uint32{7}, prompt.Chat, chatBody)
		if !errors.Is(err, want) || len(got) != 0 {
			t.Errorf("call %d: %v, %v, want %v", i, got, err, want)
		}
	}
	if _, err := c.TokensFrom(t.Context(), "http://other", nil, prompt.Chat, chatBody); !errors.Is(err, ErrNoEngine) {
		t.Errorf("another engine: %v", err)
	}
	if _, err := c.TokensFrom(t.Context(), a.URL, nil, prompt.Other, chatBody); !errors.Is(err, ErrRejected) {
		t.Errorf("another kind: %v", err)
	}
	if s := c.Stats(); s.Calls != 10 || s.Failures["unavailable"] != 1 || s.Failures["breaker_open"] != 1 {
		t.Errorf("stats %+v", s)
	}
}
