package chaos

import (
	"slices"
	"testing"
)

// TestWire: the witness finds the bodies wherever the bytes are cut, and none
// before it is whole.
func TestWire(t *testing.T) {
	frames := []struct {
		text    string
		message bool
		body    string
	}{
		{"INFO {\"server_id\":\"x\"}\r\n", false, ""},
		{"PING\r\n", false, ""},
		{"MSG a.b 1 5\r\nhello\r\n", true, "hello"},
		{"+OK\r\n", false, ""},
		{"MSG a 2 reply.to 7\r\nMSG\r\n 9\r\n", true, "MSG\r\n 9"},
		{"HMSG a.b 9 12 15\r\nNATS/1.0\r\n\r\nabc\r\n", true, "abc"},
		{"HMSG a 1 re 12 12\r\nNATS/1.0\r\n\r\n\r\n", true, ""},
		{"MSG a.b 1 0\r\n\r\n", true, ""},
		{"-ERR 'Stale Connection'\r\n", false, ""},
	}
	var stream string
	var bodies []string
	var ends []int
	for _, f := range frames {
		stream += f.text
		if f.message {
			bodies, ends = append(bodies, f.body), append(ends, len(stream))
		}
	}
	for first := range len(stream) + 1 {
		for second := first; second <= len(stream); second++ {
			var got []string
			w := wire{deliver: func(body []byte) { got = append(got, string(body)) }}
			from := 0
			for _, to := range []int{first, second, len(stream)} {
				w.feed([]byte(stream[from:to]))
				from = to
				whole := 0
				for whole < len(ends) && ends[whole] <= to {
					whole++
				}
				if !slices.Equal(got, bodies[:whole]) {
					t.Fatalf("cut at %d and %d: %q after %d bytes, want %q", first, second, got, to, bodies[:whole])
				}
			}
		}
	}
}
