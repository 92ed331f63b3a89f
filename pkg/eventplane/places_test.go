package eventplane

import (
	"fmt"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

func anyone(fleet.Key) bool { return true }

// TestPlaces: where the words about a worker go, by what was heard before.
func TestPlaces(t *testing.T) {
	const (
		component = "namespace.ns.component.backend."
		endpoint  = "namespace.caf%C3%A9%20x.component.backend.endpoint.gen%7E1."
	)
	type said struct {
		subject string
		router  bool // says it about the worker
	}
	for name, tc := range map[string]struct {
		said []said
		want string
	}{
		"nothing":                      {nil, ""},
		"KV events, 1.2":               {[]said{{component + "kv-events", false}}, component},
		"KV events, 1.4":               {[]said{{endpoint + "kv-events", false}}, endpoint},
		"passes":                       {[]said{{component + "forward-pass-metrics", false}}, component},
		"kv_metrics, 1.4":              {[]said{{endpoint + "kv_metrics", false}}, endpoint},
		"kv_metrics, 1.2":              {[]said{{"namespace.ns.kv_metrics", false}}, ""},
		"kv_metrics of an odd name":    {[]said{{"namespace.component.kv_metrics", false}}, ""},
		"its own prefill done":         {[]said{{endpoint + "active_sequences_events", false}}, endpoint},
		"a router":                     {[]said{{component + "active_sequences_events", true}}, component},
		"a router, then itself":        {[]said{{component + "active_sequences_events", true}, {endpoint + "kv-events", false}}, endpoint},
		"itself, then a router":        {[]said{{endpoint + "kv-events", false}, {component + "active_sequences_events", true}}, endpoint},
		"a router, then another":       {[]said{{component + "active_sequences_events", true}, {endpoint + "active_sequences_events", true}}, endpoint},
		"the same from both":           {[]said{{component + "active_sequences_events", true}, {component + "kv-events", false}, {endpoint + "active_sequences_events", true}}, component},
		"it moved":                     {[]said{{component + "kv-events", false}, {endpoint + "kv-events", false}}, endpoint},
		"a namespace alone, then not":  {[]said{{"namespace.ns.kv_metrics", false}, {component + "kv-events", false}}, component},
		"a place, then namespace only": {[]said{{component + "kv-events", false}, {"namespace.ns.kv_metrics", false}}, component},
		"no subject":                   {[]said{{"", false}, {"x", false}, {"a.b", true}, {"namespace.ns.component.%zz.endpoint.e.kv-events", false}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlaces(anyone)
			for _, s := range tc.said {
				if s.router {
					p.mentioned(fleet.Key{ID: 7, Rank: 1}, s.subject)
				} else {
					p.heard(fleet.Key{ID: 7, Rank: 2}, s.subject)
				}
			}
			want := tc.want
			if want != "" {
				want += "active_sequences_events"
			}
			if got := p.subject(fleet.Key{ID: 7}); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got := p.subject(fleet.Key{ID: 8}); got != "" {
				t.Errorf("another worker is at %q", got)
			}
		})
	}
}

// TestPlacesAreBounded: workers in no pool make room, and when all are in one,
// new ones find none.
func TestPlacesAreBounded(t *testing.T) {
	members := uint64(10)
	p := newPlaces(func(k fleet.Key) bool { return k.ID < members })
	for i := range uint64(maxPlaces) {
		p.heard(fleet.Key{ID: i}, componentSubject)
	}
	if n := len(p.of); n != maxPlaces {
		t.Fatalf("%d places, want %d", n, maxPlaces)
	}
	p.heard(fleet.Key{ID: 1 << 40}, endpointSubject)
	if n := len(p.of); n != int(members)+1 || p.subject(fleet.Key{ID: 9}) == "" || p.subject(fleet.Key{ID: 1 << 40}) == "" {
		t.Errorf("%d places when strangers made room, want %d", n, members+1)
	}
	members = 1 << 63
	for i := range uint64(maxPlaces) {
		p.heard(fleet.Key{ID: i}, componentSubject)
	}
	if n := len(p.of); n != maxPlaces || p.subject(fleet.Key{ID: maxPlaces - 1}) != "" {
		t.Errorf("%d places, want %d and none for the last", n, maxPlaces)
	}
	p.heard(fleet.Key{ID: 3}, endpointSubject)
	if got := p.subject(fleet.Key{ID: 3}); got != "namespace.dynamo.component.backend.endpoint.generate.active_sequences_events" {
		t.Errorf("a worker that moved is still at %q", got)
	}
}

// TestHearingAgainIsFree: what comes with every message allocates nothing.
func TestHearingAgainIsFree(t *testing.T) {
	p := newPlaces(anyone)
	k := fleet.Key{ID: 1 << 60}
	topics := []string{endpointSubject, "namespace.dynamo.component.backend.endpoint.generate.kv_metrics", "namespace.dynamo.kv_metrics"}
	for _, s := range topics {
		p.heard(k, s)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, s := range topics {
			p.heard(k, s)
		}
		p.mentioned(k, componentSubject)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkHeard is what a message costs of a worker whose place is known.
func BenchmarkHeard(b *testing.B) {
	p := newPlaces(anyone)
	subjects := make([]string, 64)
	for i := range subjects {
		subjects[i] = fmt.Sprint(endpointSubject)
		p.heard(fleet.Key{ID: uint64(i)}, subjects[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p.heard(fleet.Key{ID: uint64(i % 64)}, subjects[i%64])
		i++
	}
}
