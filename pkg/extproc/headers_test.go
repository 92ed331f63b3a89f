package extproc

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// The class and the session of a request are what the headers say that the policy
// names, and nothing where it names none.
func TestHeadersOfPolicies(t *testing.T) {
	const class, session = "x-dynamo-meta-policy-class", "x-session"
	sent := []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte("POST")},
		{Key: "", RawValue: []byte("nameless")},
		{Key: "X-Dynamo-Meta-Policy-Class", Value: "batch"},
		{Key: session, RawValue: []byte("s-1")},
		{Key: "x-prefiller-host-port", RawValue: []byte("10.0.0.1:1")},
	}
	for _, tc := range []struct {
		class, session         string // headers
		wantClass, wantSession string
	}{
		{"", "", "", ""},
		{class, "", "batch", ""},
		{"", session, "", "s-1"},
		{class, session, "batch", "s-1"},
		{session, session, "s-1", "s-1"},
		{"x-other", "x-other", "", ""},
		{"x-prefiller-host-port", "", "10.0.0.1:1", ""},
	} {
		r := &routing{Routing: Routing{ClassHeader: tc.class, SessionHeader: tc.session}, strip: routingHeaders(nil)}
		h := head{class: "of the request before", session: "of the request before"}
		h.read(sent, r)
		if h.class != tc.wantClass || h.session != tc.wantSession {
			t.Errorf("headers %q and %q: class %q, session %q", tc.class, tc.session, h.class, h.session)
		}
		if len(h.strip) != 1 || h.strip[0] != "x-prefiller-host-port" {
			t.Errorf("headers %q and %q: %v are taken off", tc.class, tc.session, h.strip)
		}
	}
}
