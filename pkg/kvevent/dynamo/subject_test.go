package dynamo

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSubject(t *testing.T) {
	for _, c := range []struct {
		subject string
		want    Subject
	}{
		{
			"namespace.dynamo.component.backend.kv-events",
			Subject{"dynamo", "backend", "", "kv-events", ComponentScope},
		},
		{
			"namespace.dynamo.component.backend.endpoint.generate.kv-events",
			Subject{"dynamo", "backend", "generate", "kv-events", EndpointScope},
		},
		{
			"namespace.dynamo.kv_metrics",
			Subject{"dynamo", "", "", "kv_metrics", NamespaceScope},
		},
		// dynamo-live.md section 2: names that need encoding.
		{
			"namespace.caf%C3%A9%20x.component.backend.endpoint.gen%7E1.kv-events",
			Subject{"café x", "backend", "gen~1", "kv-events", EndpointScope},
		},
		{
			"namespace.a%2Eb.component.c.endpoint.e.kv-events",
			Subject{"a.b", "c", "e", "kv-events", EndpointScope},
		},
		// Component scope encodes nothing, so a '%' there is one.
		{
			"namespace.a%20b.component.backend.kv-events",
			Subject{"a%20b", "backend", "", "kv-events", ComponentScope},
		},
		// dynamo.md 1.8: the JetStream mode.
		{
			"namespace-dynamo-component-backend-kv-events.kv-events",
			Subject{"dynamo", "backend", "", "kv-events", StreamScope},
		},
		{
			"namespace-a-component-b-component-c-kv-events.kv-events",
			Subject{"a-component-b", "c", "", "kv-events", StreamScope},
		},
		{
			"namespace-a-component-component-kv-events-kv-events.kv-events",
			Subject{"a-component", "kv-events", "", "kv-events", StreamScope},
		},
		{
			"namespace---component-component--kv-events.kv-events",
			Subject{"-", "component-", "", "kv-events", StreamScope},
		},
		{
			"namespace.component.component.endpoint.kv-events",
			Subject{"component", "endpoint", "", "kv-events", ComponentScope},
		},
	} {
		got, err := ParseSubject(c.subject)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.subject, got, err, c.want)
		}
		if s := got.String(); s != c.subject {
			t.Errorf("%s: written again %s", c.subject, s)
		}
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	for _, s := range []string{
		"", ".", "namespace", "namespace.dynamo", "namespace..kv-events", "namespace.dynamo.kv-events.",
		".namespace.dynamo.kv-events",
		"namespace.a.b.kv-events",
		"namespace.a.part.b.kv-events",
		"namespace.a.component.b.endpoint.kv-events",
		"namespace.a.component.b.end.c.kv-events",
		"namespace.a.component.b.endpoint.c.kv-events.more",
		"NAMESPACE.dynamo.component.backend.kv-events",
		"namespace.*.component.backend.kv-events", "namespace.>",
		"namespace.a%2.component.b.endpoint.c.kv-events",
		"namespace.a.component.%zz.endpoint.c.kv-events",
		"namespace.a.component.b.endpoint.%.kv-events",
		"namespace-dynamo-component-backend-kv-events.queue",
		"namespace-dynamo-component-backend-kv-events.kv-events.more",
		"namespace-dynamo-component-backend.kv-events",
		"namespace-dynamo-component-kv-events.kv-events",
		"namespace-dynamo-component--kv-events.kv-events",
		"namespace--component-backend-kv-events.kv-events",
		"namespace-dynamo-backend-kv-events.kv-events",
		"namespace-Dynamo-component-backend-kv-events.kv-events",
		"namespace-dyn_amo-component-backend-kv-events.kv-events",
		"dynamo-component-backend-kv-events.kv-events",
		"*.kv-events", "queue.kv-events",
		"$JS.API.STREAM.CREATE.namespace-dynamo-component-backend-kv-events",
		"_INBOX.x",
	} {
		if got, err := ParseSubject(s); !errors.Is(err, errSubject) || got != (Subject{}) {
			t.Errorf("%q: %+v, %v; want an error", s, got, err)
		}
	}
	_, err := ParseSubject(strings.Repeat("a.", 1<<16))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("long subject: error of %d bytes", len(err.Error()))
	}
}

func TestParseSubjectDoesNotAllocate(t *testing.T) {
	const s = "namespace.dynamo.component.backend.endpoint.generate.kv-events"
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ParseSubject(s); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSubjectRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(label string) string {
			return string(rapid.SliceOfN(rapid.Byte(), 1, 12).Draw(t, label))
		}
		s := Subject{name("ns"), name("component"), name("endpoint"), TopicKVEvents, EndpointScope}
		got, err := ParseSubject(s.String())
		if err != nil || got != s {
			t.Fatalf("%q: %+v, %v; want %+v", s.String(), got, err, s)
		}
	})
}

func TestEventSubject(t *testing.T) {
	for _, c := range []struct {
		gen  Generation
		want string
	}{
		{Gen12, "namespace.my ns.component.prefill.kv-events"},
		{Gen14, "namespace.my%20ns.component.prefill.endpoint.generate.kv-events"},
		{Gen15, "namespace.my%20ns.component.prefill.endpoint.generate.kv-events"},
	} {
		if got := EventSubject(c.gen, "my ns", "prefill", "generate"); got != c.want {
			t.Errorf("generation %d: %s, want %s", c.gen, got, c.want)
		}
	}
}

// TestKVEventSubjects: every subject a worker may publish on matches exactly one
// of the subscriptions, by NATS's rule for '*'.
func TestKVEventSubjects(t *testing.T) {
	matches := func(pattern, subject string) bool {
		p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
		return slices.EqualFunc(p, s, func(p, s string) bool { return p == "*" || p == s })
	}
	for _, subject := range []string{
		EventSubject(Gen12, "default-demo-0a1b2c3d", "tensorrt_llm", "generate"),
		EventSubject(Gen14, "default-demo-0a1b2c3d", "tensorrt_llm", "generate"),
		EventSubject(Gen15, "default-demo-0a1b2c3d", "tensorrt_llm", "generate"),
		Subject{"default-demo-0a1b2c3d", "tensorrt-llm", "", TopicKVEvents, StreamScope}.String(),
	} {
		n := 0
		for _, p := range KVEventSubjects() {
			if matches(p, subject) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: matched by %d subscriptions", subject, n)
		}
	}
}

// TestIn: whose a subject is. Of the JetStream mode only slugs are known, so the
// base is compared as one, and what may be ours counts as ours.
func TestIn(t *testing.T) {
	for _, c := range []struct {
		subject, base string
		want          bool
	}{
		{"namespace.my_Team-0a1b2c3d.component.backend.kv-events", "my_Team", true},
		{"namespace.my-team-0a1b2c3d.component.backend.kv-events", "my_Team", false},
		{"namespace.a%2Eb.component.c.endpoint.e.kv-events", "a.b", true},
		{"namespace.dynamo.kv_metrics", "dynamo", true},
		{"namespace.dynamo.kv_metrics", "other", false},

		{"namespace-dynamo-component-backend-kv-events.kv-events", "dynamo", true},
		{"namespace-dynamo-component-backend-kv-events.kv-events", "", true},
		{"namespace-dynamo-component-backend-kv-events.kv-events", "dyn", false},
		{"namespace-dynamo-component-backend-kv-events.kv-events", "dynamo-component", false},
		{"namespace-dynamo-component-backend-kv-events.kv-events", "dynamo-component-backend", false},
		{"namespace-my-team-component-backend-kv-events.kv-events", "my_Team", true},
		{"namespace-my-team-0a1b2c3d-component-backend-kv-events.kv-events", "my_Team", true},
		{"namespace-my-team-legacy-component-backend-kv-events.kv-events", "MY TEAM", true},
		{"namespace-my-team-0a1b2c3-component-backend-kv-events.kv-events", "my_Team", false},
		{"namespace-my-team-two-component-backend-kv-events.kv-events", "my_Team", false},
		{"namespace-caf--component-backend-kv-events.kv-events", "café", true},
		// A base that holds "-component-" itself, and a component that does.
		{"namespace-a-component-b-component-c-kv-events.kv-events", "a-component-b", true},
		{"namespace-a-component-b-0a1b2c3d-component-c-kv-events.kv-events", "a_component_b", true},
		{"namespace-a-component-component-b-kv-events.kv-events", "a-component", true},
		{"namespace-a-component-b-component-c-kv-events.kv-events", "a", true},
		{"namespace-a-component-b-component-c-kv-events.kv-events", "b", false},
		{"namespace-a-component-b-component-c-kv-events.kv-events", "a-component-b-component-c", false},
	} {
		s, err := ParseSubject(c.subject)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.In(c.base); got != c.want {
			t.Errorf("%s in %q: %v", c.subject, c.base, got)
		}
	}
}

// TestStreamOfAnyNames: whatever the names, the stream they go to is heard as
// theirs, by the base and by base and suffix.
func TestStreamOfAnyNames(t *testing.T) {
	name := rapid.OneOf(
		rapid.StringMatching(`[a-zA-Z0-9_. é-]{1,12}`),
		rapid.StringMatching(`(a|component|namespace|[-_]){1,6}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		base, component := name.Draw(t, "base"), name.Draw(t, "component")
		ns := base + rapid.SampledFrom([]string{"", "-0a1b2c3d", "-legacy"}).Draw(t, "suffix")
		text := "namespace-" + slug(ns) + "-component-" + slug(component) + "-kv-events.kv-events"
		s, err := ParseSubject(text)
		if err != nil || s.String() != text || s.Scope != StreamScope || !s.In(base) || !s.In(ns) {
			t.Fatalf("%s of %q and %q: %+v, %v", text, ns, component, s, err)
		}
	})
}

func TestInNamespace(t *testing.T) {
	for _, c := range []struct {
		ns, base string
		want     bool
	}{
		{"dynamo", "dynamo", true},
		{"anything", "", true},
		{"", "", true},
		{"default-demo-0a1b2c3d", "default-demo", true},
		{"default-demo-legacy", "default-demo", true},
		{"default-demo-0A1B2C3D", "default-demo", false},
		{"default-demo-0a1b2c3", "default-demo", false},
		{"default-demo-0a1b2c3d4", "default-demo", false},
		{"default-demo-0a1b2c3g", "default-demo", false},
		{"default-demo-", "default-demo", false},
		{"default-demo0a1b2c3d", "default-demo", false},
		{"default-demo_0a1b2c3d", "default-demo", false},
		{"default-demo-two-0a1b2c3d", "default-demo", false},
		{"default-demo", "default-demo-0a1b2c3d", false},
		{"default-dem", "default-demo", false},
		{"", "default-demo", false},
		{"other", "default-demo", false},
	} {
		if got := InNamespace(c.ns, c.base); got != c.want {
			t.Errorf("InNamespace(%q, %q) = %v", c.ns, c.base, got)
		}
	}
}

func FuzzParseSubject(f *testing.F) {
	f.Add("namespace.dynamo.component.backend.kv-events")
	f.Add("namespace.caf%C3%A9%20x.component.b.endpoint.gen%7e1.kv-events")
	f.Add("namespace.dynamo.kv_metrics")
	f.Add("namespace..%")
	f.Add("namespace-a-component-b-component-c-kv-events.kv-events")
	f.Fuzz(func(t *testing.T, subject string) {
		s, err := ParseSubject(subject)
		if err != nil {
			return
		}
		again, err := ParseSubject(s.String())
		if err != nil || again != s {
			t.Fatalf("%q is %+v, written %q, read again %+v, %v", subject, s, s.String(), again, err)
		}
	})
}
