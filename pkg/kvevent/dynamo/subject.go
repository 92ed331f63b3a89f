package dynamo

import (
	"errors"
	"fmt"
	"strings"
)

// Topics of Dynamo's event plane: the last token of a subject, and the "topic"
// of the envelope (dynamo.md 1.2).
const (
	TopicKVEvents           = "kv-events"
	TopicKVMetrics          = "kv_metrics"
	TopicForwardPassMetrics = "forward-pass-metrics"
	TopicActiveSequences    = "active_sequences_events"
)

// Scope is how much of a worker's place in a deployment a subject names.
type Scope uint8

// Scopes of subjects. The zero value is none of them.
const (
	ComponentScope Scope = iota + 1 // namespace and component: Dynamo 1.2 and 1.3
	EndpointScope                   // and endpoint, percent-encoded: Dynamo 1.4+
	NamespaceScope                  // namespace only: kv_metrics of 1.2 and 1.3
	StreamScope                     // slugs of namespace and component: the JetStream mode of 1.2 and 1.3
)

// String returns the scope's name.
func (s Scope) String() string {
	switch s {
	case ComponentScope:
		return "component"
	case EndpointScope:
		return "endpoint"
	case NamespaceScope:
		return "namespace"
	case StreamScope:
		return "stream"
	}
	return "unknown"
}

// Subject is a NATS subject of the event plane, taken apart. Names are as the
// worker knows them, without encoding, but for [StreamScope], which has their
// slugs only. Component and Endpoint are empty where the scope does not name them.
type Subject struct {
	Namespace, Component, Endpoint, Topic string
	Scope                                 Scope
}

// errSubject is the reason a subject is refused.
var errSubject = errors.New("not a subject of Dynamo's event plane")

// ParseSubject takes a subject apart (dynamo.md 1.2, 1.8). Names are
// percent-decoded in endpoint scope and taken as they stand in the others. Other
// subjects and subscriptions with wildcards are errors.
func ParseSubject(subject string) (Subject, error) {
	var tok [7]string
	n := 0
	for rest, more := subject, true; more; n++ {
		if n == len(tok) {
			return Subject{}, fmt.Errorf("%w: %.200q has more than %d tokens", errSubject, subject, len(tok))
		}
		tok[n], rest, more = strings.Cut(rest, ".")
		if t := tok[n]; t == "" || t == "*" || t == ">" {
			return Subject{}, fmt.Errorf("%w: token %d of %.200q is %q", errSubject, n+1, subject, t)
		}
	}
	if n == 2 && tok[1] == TopicKVEvents {
		if s, ok := streamSubject(tok[0]); ok {
			return s, nil
		}
	}
	if tok[0] == "namespace" {
		switch {
		case n == 3:
			return Subject{Namespace: tok[1], Topic: tok[2], Scope: NamespaceScope}, nil
		case n == 5 && tok[2] == "component":
			return Subject{Namespace: tok[1], Component: tok[3], Topic: tok[4], Scope: ComponentScope}, nil
		case n == 7 && tok[2] == "component" && tok[4] == "endpoint":
			return endpointSubject(tok[1], tok[3], tok[5], tok[6])
		}
	}
	return Subject{}, fmt.Errorf("%w: %.200q", errSubject, subject)
}

// endpointSubject builds a subject of endpoint scope from encoded names.
func endpointSubject(namespace, component, endpoint, topic string) (Subject, error) {
	s := Subject{Namespace: namespace, Component: component, Endpoint: endpoint, Topic: topic, Scope: EndpointScope}
	for _, name := range []*string{&s.Namespace, &s.Component, &s.Endpoint} {
		decoded, ok := percentDecode(*name)
		if !ok {
			return Subject{}, fmt.Errorf("%w: %.200q is not percent-encoded", errSubject, *name)
		}
		*name = decoded
	}
	return s, nil
}

// String returns the subject as Dynamo writes it: the inverse of [ParseSubject].
func (s Subject) String() string {
	switch s.Scope {
	case NamespaceScope:
		return "namespace." + s.Namespace + "." + s.Topic
	case ComponentScope:
		return "namespace." + s.Namespace + ".component." + s.Component + "." + s.Topic
	case EndpointScope:
		return "namespace." + percentEncode(s.Namespace) + ".component." + percentEncode(s.Component) +
			".endpoint." + percentEncode(s.Endpoint) + "." + s.Topic
	case StreamScope:
		return streamPrefix + s.Namespace + streamComponent + s.Component + streamSuffix + "." + s.Topic
	}
	return "unknown." + s.Topic
}

// KVEventSubjects returns the subscriptions that together hear the KV events of
// every component and every Dynamo release (dynamo.md 1.2). NATS wildcards match
// whole tokens, so namespaces are filtered afterwards, by [Subject.In].
//
// The last one hears what workers in JetStream mode put into Dynamo's own stream.
// It is for plain subscribers: a second stream on the same subjects is refused by
// the server.
func KVEventSubjects() []string {
	return []string{
		"namespace.*.component.*." + TopicKVEvents,
		"namespace.*.component.*.endpoint.*." + TopicKVEvents,
		"*." + TopicKVEvents,
	}
}

// In reports whether the subject belongs to the deployment with the given base
// namespace, by the rule of [InNamespace]. In [StreamScope] the slugs are
// compared, and they may fit by chance: see inStream.
func (s Subject) In(base string) bool {
	if s.Scope == StreamScope && base != "" {
		return s.inStream(slug(base))
	}
	return InNamespace(s.Namespace, base)
}

// InNamespace reports whether namespace ns belongs to the deployment with the
// given base namespace: it is the base, or the base with the suffix that
// Dynamo's operator adds per worker spec, 8 lower-case hex digits or "legacy"
// (dynamo.md 1.2). Every namespace belongs to the empty base.
func InNamespace(ns, base string) bool {
	if base == "" || ns == base {
		return true
	}
	suffix, ok := strings.CutPrefix(ns, base)
	if !ok || suffix[0] != '-' {
		return false
	}
	suffix = suffix[1:]
	return suffix == "legacy" || len(suffix) == 8 && strings.Trim(suffix, "0123456789abcdef") == ""
}

const upperHex = "0123456789ABCDEF"

// plain reports whether a byte stands for itself in an endpoint-scope subject.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// percentEncode writes %XX for every byte that is not plain.
func percentEncode(s string) string {
	first := strings.IndexFunc(s, func(r rune) bool { return r > 0x7f || !plain(byte(r)) })
	if first < 0 {
		return s
	}
	buf := append(make([]byte, 0, 3*len(s)), s[:first]...)
	for i := first; i < len(s); i++ {
		if c := s[i]; plain(c) {
			buf = append(buf, c)
		} else {
			buf = append(buf, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(buf)
}

// percentDecode undoes percentEncode. Bytes that need no escape pass as they
// are; a '%' without two hex digits is refused.
func percentDecode(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	buf := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			buf = append(buf, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi > 15 || lo > 15 {
			return "", false
		}
		buf = append(buf, hi<<4|lo)
		i += 2
	}
	return string(buf), true
}

// unhex returns the value of a hex digit, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
