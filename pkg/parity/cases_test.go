package parity

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// TestCanned: the requests are good ones, and are of the shape they stand for.
func TestCanned(t *testing.T) {
	seen := map[Shape]int{}
	names := map[string]bool{}
	for _, c := range Canned(`my "model"\`) {
		var b prompt.Body
		if err := b.Scan(c.Kind, c.Body); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if b.Model != `my "model"\` || b.Exact {
			t.Errorf("%s: model %q, exact %v", c.Name, b.Model, b.Exact)
		}
		if got := ShapeOf(c.Kind, &b); got != c.Shape {
			t.Errorf("%s has the shape %v, not %v", c.Name, got, c.Shape)
		}
		if names[c.Name] || c.Name == liveName {
			t.Errorf("the name %q is taken", c.Name)
		}
		names[c.Name] = true
		seen[c.Shape]++
	}
	for s := range Shape(NumShapes) {
		if want := s != ChatMedia && s != Other; (seen[s] > 0) != want {
			t.Errorf("%v has %d canned requests", s, seen[s])
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d canned requests", len(names))
	}
}

func TestCannedWithoutModel(t *testing.T) {
	for _, c := range Canned("") {
		var fields map[string]any
		if err := json.Unmarshal(c.Body, &fields); err != nil || fields["model"] != nil {
			t.Errorf("%s: %v, model %v", c.Name, err, fields["model"])
		}
	}
}

func TestQuote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		var back string
		if err := json.Unmarshal([]byte(quote(s)), &back); err != nil || back != s {
			t.Fatalf("%q became %s: %v", s, quote(s), err)
		}
	})
}

func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		kind prompt.Kind
		body prompt.Body
		want Shape
	}{
		{prompt.Chat, prompt.Body{}, Chat},
		{prompt.Chat, prompt.Body{Features: prompt.HasOptions}, ChatOptions},
		{prompt.Chat, prompt.Body{Features: prompt.HasOptions | prompt.HasReasoning}, ChatReasoning},
		{prompt.Chat, prompt.Body{Features: prompt.HasOptions | prompt.HasReasoning | prompt.HasTools}, ChatTools},
		{prompt.Chat, prompt.Body{Features: prompt.HasTools, HasMedia: true}, ChatMedia},
		{prompt.Completion, prompt.Body{Features: prompt.HasOptions}, Completion},
		{prompt.Other, prompt.Body{}, Other},
	} {
		if got := ShapeOf(tc.kind, &tc.body); got != tc.want {
			t.Errorf("%v with %03b, media %v: %v, want %v", tc.kind, tc.body.Features, tc.body.HasMedia, got, tc.want)
		}
	}
}
