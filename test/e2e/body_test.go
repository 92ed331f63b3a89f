package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// bodySize of a large body; no part of the way keeps that much at once.
const bodySize = 20 << 20

// TestBodies wants bodies to arrive as they were sent, with a content-length
// where the gateway keeps it, and chunked where not.
func TestBodies(t *testing.T) {
	for i, f := range follows {
		for _, keep := range []bool{false, true}[:1+(i+1)%2] {
			t.Run(fmt.Sprintf("%s/keep=%t", f.name, keep), func(t *testing.T) {
				t.Parallel()
				s := newStack(t)
				answer := random(bodySize / 8)
				agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, answer) // the client is gone when this fails
				})
				s.list(&agg.worker)
				s.startPicker(pickerOptions{})
				s.startGateway(gateway.Config{Follow: f.mode, KeepContentLength: keep}, &agg.worker)
				for name, c := range map[string]struct{ path, body string }{
					"large completion": {"/v1/completions", padded(bodySize)},
					"a file":           {"/v1/files", random(bodySize / 10)},
					"small completion": {"/v1/completions", completion(tokens(1, 20))},
					"odd spelling":     {"/v1/completions", " {\"prompt\" :[1, 2],\n\t\"model\":\"a\\u0062\",\"x\":1.0e2,\"x\":[]} \r\n"},
					"no body":          {"/v1/files", ""},
				} {
					if r := s.post(c.path, c.body, nil); r.status != http.StatusOK || r.body != answer {
						t.Errorf("%s: answer %d of %d bytes, want the worker's %d", name, r.status, len(r.body), len(answer))
					}
					wantBody(t, name, agg.last(t), c.body, keep)
				}
				s.idle()
			})
		}
	}
}

// random returns bytes that are no text.
func random(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // never fails
	return string(b)
}

// padded returns a completion of n bytes, with a prompt at its very end.
func padded(n int) string {
	head, end := fmt.Sprintf(`{"model":%q,"padding":"`, model), `","prompt":[1,2,3]}`
	return head + strings.Repeat("0123456789abcdef", n/16)[:n-len(head)-len(end)] + end
}

func wantBody(t *testing.T, name string, got arrived, body string, keep bool) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	if got.size != len(body) || got.sum != hex.EncodeToString(sum[:]) {
		t.Errorf("%s: other bytes arrived: %d, sent %d", name, got.size, len(body))
	}
	if keep || body == "" {
		if got.length != int64(len(body)) || len(got.encoding) > 0 {
			t.Errorf("%s: content-length %d, encoding %v, want %d and none", name, got.length, got.encoding, len(body))
		}
	} else if got.length != -1 || !slices.Equal(got.encoding, []string{"chunked"}) {
		t.Errorf("%s: content-length %d, encoding %v, want chunked", name, got.length, got.encoding)
	}
}

// TestBodyInPieces sends a request byte by byte, plain and chunked.
func TestBodyInPieces(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
	s.list(&agg.worker)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	body := fmt.Sprintf(`{"model":%q,"prompt":[1,22,333,4444],"user":"\u00e9 Gr\u00fc\u00dfe \ud83d\ude00 é"}`, model)
	head := "POST /v1/completions HTTP/1.1\r\nHost: e2e\r\n"
	chunked, trailers := head+"Transfer-Encoding: chunked\r\n\r\n", head+"Transfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n"
	for i := range len(body) {
		chunk := fmt.Sprintf("1\r\n%s\r\n", body[i:i+1])
		chunked += chunk
		trailers += chunk
	}
	for name, c := range map[string]struct {
		raw  string
		step int // bytes per write
	}{
		"content-length, byte by byte": {fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body), 1},
		"chunked, byte by byte":        {chunked + "0\r\n\r\n", 1},
		"chunked, in odd pieces":       {chunked + "0\r\n\r\n", 7},
		"chunked, at once":             {chunked + "0\r\n\r\n", 1 << 20},
		"with trailers":                {trailers + "0\r\nx-end: here\r\n\r\n", 5},
	} {
		conn := s.dial()
		for rest := c.raw; rest != ""; {
			n := min(c.step, len(rest))
			if _, err := io.WriteString(conn, rest[:n]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rest = rest[n:]
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || string(text) != "{}" || err != nil {
			t.Errorf("%s: %s %q, %v", name, resp.Status, text, err)
		}
		resp.Body.Close()
		conn.Close()
		wantBody(t, name, agg.last(t), body, false)
	}
	if n := s.metric("warmpath_prompts_total", `source="token_ids"`); n != 5 {
		t.Errorf("%v prompts were read, want 5", n)
	}
	s.idle()
}

// TestExpectContinue holds the body back until the gateway asks for it, as curl
// does with a large one.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := newRecorder(t, "agg-0", fleet.Aggregated, 1, nil)
	s.list(&agg.worker)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	body := completion(tokens(1, 1000))
	conn := s.dial()
	lines := bufio.NewReader(conn)
	for range 2 { // on one connection
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: e2e\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
		for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
			if line, err := lines.ReadString('\n'); line != want || err != nil {
				t.Fatalf("before the body: %q, %v", line, err)
			}
		}
		if _, err := io.WriteString(conn, body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || string(text) != "{}" || err != nil {
			t.Errorf("%s %q, %v", resp.Status, text, err)
		}
		resp.Body.Close()
		wantBody(t, "expect", agg.last(t), body, false)
	}
}
