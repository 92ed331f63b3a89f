package recovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

// FuzzAnswer reads arbitrary streams after the greeting. Nothing may panic, grow
// beyond the limit, or pass as an answer that is not one; what passes in one
// piece passes in single bytes too, and only as a whole.
func FuzzAnswer(f *testing.F) {
	for i, version := range versions {
		_, all := record(f, version)
		for _, r := range all {
			greeting, err := readFrame(bytes.NewReader(r.Response), maxHeader, 0)
			must(f, err)
			// Long ones keep the fuzzer busy making them short.
			if len(r.Response) < 400 {
				f.Add(r.Response[greeting.size():], r.asked.WorkerID, i == 0)
			}
		}
	}
	packed, err := transcode(nil, []byte(one(1, 2)))
	must(f, err)
	f.Add(stream(string(packed)), uint64(1), false)
	f.Add(stream(one(1, 2)), uint64(1), true)
	f.Add(stream(strings.Replace(one(1, 2), `"stored":{`, `"removed":{"block_hashes":[1,18446744073709551615],`, 1)), uint64(1), true)
	f.Fuzz(func(t *testing.T, b []byte, worker uint64, old bool) {
		const limit = 1 << 20
		target := Target{Path: "1/x"}
		if old {
			target.Path = "1/" + oldEndpoint + "0"
		}
		read := func(r io.Reader) (Answer, error) {
			p := &parser{target: target, request: Request{WorkerID: worker}}
			err := readAnswer(r, p, limit)
			return p.answer, err
		}
		a, err := read(bytes.NewReader(b))
		again, againErr := read(&trickle{b})
		if (err == nil) != (againErr == nil) {
			t.Fatalf("in one piece: %v; in bytes: %v", err, againErr)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(a, again) {
			t.Fatalf("in one piece and in bytes differ:\n%s", cmp.Diff(a, again))
		}
		if a.Kind < Events || a.Kind > InvalidRange || a.Bytes > limit || a.Bytes > int64(len(b)) {
			t.Fatalf("kind %d, %d bytes of %d", a.Kind, a.Bytes, len(b))
		}
		for _, e := range a.Events {
			if e.WorkerID != worker || e.Kind == 0 {
				t.Fatalf("event %+v", e)
			}
		}
		if _, err := read(bytes.NewReader(b[:a.Bytes-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("without its last byte: %v", err)
		}
	})
}

// trickle gives one byte at a time.
type trickle struct{ b []byte }

func (r *trickle) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p[0], r.b = r.b[0], r.b[1:]
	return 1, nil
}

// FuzzFrame reads arbitrary bytes as frames. What is read writes the same bytes,
// but for the checksum.
func FuzzFrame(f *testing.F) {
	for _, version := range versions {
		_, all := record(f, version)
		for _, r := range all {
			f.Add(r.Response)
		}
	}
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			start := len(b) - r.Len()
			got, err := readFrame(r, 1000, 1000)
			if err != nil {
				return
			}
			want := bytes.Clone(b[start : len(b)-r.Len()])
			copy(want[16:24], make([]byte, 8))
			if again := appendFrame(nil, got.header, got.body); !bytes.Equal(again, want) || got.size() != int64(len(want)) {
				t.Fatalf("%x became %x", want, again)
			}
		}
	})
}

// FuzzTranscode compares with encoding/json: the same values, integers exact.
func FuzzTranscode(f *testing.F) {
	for _, s := range []string{
		`null`, `true`, ` [ false , -1.5e3 , -0 ] `, `{"a":{"b":[]},"":{}}`, `"\u00e9\ud83d\ude00\\\""`, `"é` + "\xff" + `"`,
		`18446744073709551615`, `18446744073709551616`, `-9223372036854775808`, `-9223372036854775809`, `1e999`, `"\\"`,
		one(1, 2), `{"a":1,"a":2}`, `{"a":1e999,"a":2}`, `{"a":[[]],"a":2}`, `[[[[[[]]]]]]`, `0`, `{"a" : [1 , {"b" : "c"}]	}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := transcode(nil, b)
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		var want any
		if !json.Valid(b) || d.Decode(&want) != nil {
			if err == nil {
				t.Fatalf("%q passes", b)
			}
			return
		}
		fits, levels := survey(t, b)
		if ok := fits && levels <= maxDepth; ok != (err == nil) {
			t.Fatalf("%q: %v; numbers fit: %v, depth %d", b, err, fits, levels)
		}
		if err != nil {
			return
		}
		if rest, err := same(got, want); err != nil || len(rest) > 0 {
			t.Fatalf("%q: %v, %d bytes follow", b, err, len(rest))
		}
	})
}

// survey says whether all numbers of valid JSON can be written, and how many
// values lie around the innermost one.
func survey(t *testing.T, b []byte) (fits bool, depth int) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	fits = true
	for around := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return fits, depth
		}
		must(t, err)
		switch token := token.(type) {
		case json.Delim:
			if token == '}' || token == ']' {
				around--
				continue
			}
			depth = max(depth, around)
			around++
			continue
		case json.Number:
			_, err := number(token)
			fits = fits && err == nil
		}
		depth = max(depth, around)
	}
}

// number is a JSON number as uint64, int64 or float64.
func number(n json.Number) (any, error) {
	s := n.String()
	if strings.ContainsAny(s, ".eE") {
		return strconv.ParseFloat(s, 64)
	}
	if s[0] == '-' {
		return strconv.ParseInt(s, 10, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}

var errDiffers = errors.New("differs")

// same compares msgpack with a decoded JSON value.
func same(b []byte, want any) ([]byte, error) {
	got, rest, err := msgp.ReadIntfBytes(b)
	if err != nil {
		return nil, err
	}
	if !equal(got, want) {
		return nil, errDiffers
	}
	return rest, nil
}

func equal(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok || len(m) != len(want) {
			return false
		}
		for k, v := range want {
			if g, ok := m[k]; !ok || !equal(g, v) {
				return false
			}
		}
		return true
	case []any:
		s, ok := got.([]any)
		if !ok || len(s) != len(want) {
			return false
		}
		for i := range want {
			if !equal(s[i], want[i]) {
				return false
			}
		}
		return true
	case json.Number:
		n, err := number(want)
		if err != nil {
			return false
		}
		switch n := n.(type) {
		case uint64:
			switch g := got.(type) {
			case uint64:
				return g == n
			case int64:
				return n <= math.MaxInt64 && g == int64(n)
			}
			return false
		case int64:
			switch g := got.(type) {
			case int64:
				return g == n
			case uint64:
				return n >= 0 && g == uint64(n)
			}
			return false
		}
		return got == n
	}
	return got == want
}
