package dynamo

import (
	"strings"
	"unicode"
)

// The parts of a subject of Dynamo's JetStream mode (dynamo.md 1.8):
// namespace-<ns>-component-<c>-kv-events.kv-events, ns and c as slugs.
const (
	streamPrefix    = "namespace-"
	streamComponent = "-component-"
	streamSuffix    = "-" + TopicKVEvents
)

// slug returns a name as the JetStream mode writes it: lower-cased, and a dash
// for every character but letters, digits and dashes (dynamo.md 1.8).
func slug(name string) string {
	return strings.Map(func(r rune) rune {
		if r = unicode.ToLower(r); slugged(r) {
			return r
		}
		return '-'
	}, name)
}

// slugged reports whether a slug has such characters.
func slugged(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-'
}

// streamSubject takes apart a stream's name. Slugs cannot be taken apart for
// sure: a namespace and a component may hold "-component-" themselves. Here a
// component does not; [Subject.In] considers every way.
func streamSubject(stream string) (Subject, bool) {
	name, ok := strings.CutPrefix(stream, streamPrefix)
	if ok {
		name, ok = strings.CutSuffix(name, streamSuffix)
	}
	at := strings.LastIndex(name[:max(len(name)-1, 0)], streamComponent)
	if !ok || at < 1 ||
		strings.ContainsFunc(name, func(r rune) bool { return !slugged(r) }) {
		return Subject{}, false
	}
	return Subject{
		Namespace: name[:at], Component: name[at+len(streamComponent):], Topic: TopicKVEvents, Scope: StreamScope,
	}, true
}

// inStream is [Subject.In] for slugs. It says yes when any namespace of the base
// may stand there. That can be another deployment: one whose namespace has the
// same slug (Dynamo itself puts both into one stream), or, for base "a", the
// namespace "a-component-b". Such events are of workers that are not in the
// fleet, which is noticed; ours missing would be silence.
func (s Subject) inStream(base string) bool {
	rest, ok := strings.CutPrefix(s.Namespace+streamComponent+s.Component, base)
	suffix, component, named := strings.Cut(rest, streamComponent)
	return ok && named && component != "" && InNamespace(base+suffix, base)
}
