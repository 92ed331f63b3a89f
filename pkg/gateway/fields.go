package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// field is one header line: a lower-case name, or a pseudo header, and a value.
type field struct{ name, value string }

// fields is a header block as ext-proc sees it.
type fields []field

// hopByHop are the headers that concern one connection only; neither side's
// reach the other. transfer-encoding among them is shown to the picker, as Envoy
// does.
var hopByHop = []string{"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "expect"}

// appendHeader appends h in the order of names.
func (fs fields) appendHeader(h http.Header) fields {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fs = append(fs, field{strings.ToLower(name), value})
		}
	}
	return fs
}

// get returns the first value of a name, or "".
func (fs fields) get(name string) string {
	for _, f := range fs {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// has reports whether there is a field of that name.
func (fs fields) has(name string) bool {
	return slices.ContainsFunc(fs, func(f field) bool { return f.name == name })
}

// without returns fs less all fields of the given names.
func (fs fields) without(names ...string) fields {
	return slices.DeleteFunc(fs, func(f field) bool { return slices.Contains(names, f.name) })
}

// header returns fs as a Go header, without pseudo headers.
func (fs fields) header() http.Header {
	h := make(http.Header, len(fs))
	for _, f := range fs {
		if !strings.HasPrefix(f.name, ":") {
			h.Add(f.name, f.value)
		}
	}
	return h
}

// appendTrailer appends the header that announces trailers, which net/http
// consumes and Envoy shows.
func (fs fields) appendTrailer(trailers http.Header) fields {
	if len(trailers) == 0 {
		return fs
	}
	return append(fs, field{"trailer", strings.Join(slices.Sorted(maps.Keys(trailers)), ", ")})
}

// message returns fs as ext-proc carries it. Envoy fills raw_value only.
func (fs fields) message() *corev3.HeaderMap {
	m := &corev3.HeaderMap{Headers: make([]*corev3.HeaderValue, len(fs))}
	for i, f := range fs {
		m.Headers[i] = &corev3.HeaderValue{Key: f.name, RawValue: []byte(f.value)}
	}
	return m
}

// mutate returns fs after the picker's mutation: removals first, then settings.
func (fs fields) mutate(m *extprocv3.HeaderMutation) fields {
	for _, name := range m.GetRemoveHeaders() {
		if name = strings.ToLower(name); mayMutate(name) && !strings.HasPrefix(name, ":") {
			fs = fs.without(name)
		}
	}
	for _, option := range m.GetSetHeaders() {
		name := strings.ToLower(option.GetHeader().GetKey())
		if !mayMutate(name) {
			continue
		}
		// Envoy takes raw_value only: a header set by value alone arrives empty.
		f := field{name, string(option.GetHeader().GetRawValue())}
		// Only the old append flag counts: ext_proc looks at no append_action.
		//nolint:staticcheck // deprecated in the API, and yet what Envoy obeys
		if !option.GetAppend().GetValue() {
			fs = fs.without(name)
		}
		fs = append(fs, f)
	}
	return fs
}

// mayMutate reports whether Envoy's default mutation rules let the picker touch
// a header: routing headers and Envoy's own are silently left alone.
func mayMutate(name string) bool {
	switch name {
	case "", "host", ":authority", ":scheme", ":method":
		return false
	}
	return !strings.HasPrefix(name, "x-envoy-")
}
