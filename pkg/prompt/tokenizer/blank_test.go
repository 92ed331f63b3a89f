package tokenizer

import (
	"fmt"
	"strings"
	"testing"
)

// A token of white space that takes the white space on its right is found in what
// it took again and again. A search of its own for the end of it each time would
// take minutes here.
func TestManyTokensInOneRunOfBlanks(t *testing.T) {
	const n = 1 << 20
	for _, late := range []bool{false, true} {
		tok, err := Load(fmt.Appendf(nil, `{"added_tokens":[
{"id":2,"content":" ","single_word":false,"lstrip":false,"rstrip":true,"normalized":%v,"special":true},
{"id":3,"content":"\t","single_word":false,"lstrip":false,"rstrip":false,"normalized":%v,"special":true}],
"model":{"type":"BPE","vocab":{"x":0,"y":1},"merges":[]}}`, late, late))
		if err != nil {
			t.Fatal(err)
		}
		for pattern, want := range map[string][]uint32{" ": {2}, " \t": {2, 3}} {
			text := strings.Repeat(pattern, n/len(pattern)) + "y"
			ids := tok.Append(nil, text, false)
			if len(ids) != n+1 || ids[n] != 1 {
				t.Fatalf("%q, late %v: %d tokens, want %d and a y", pattern, late, len(ids), n+1)
			}
			for i, id := range ids[:n] {
				if id != want[i%len(want)] {
					t.Fatalf("%q, late %v: token %d is %d", pattern, late, i, id)
				}
			}
			var parts []uint32
			for from := 0; from < len(text); {
				parts, from = tok.AppendSegment(parts, text, from)
			}
			if len(parts) != len(ids) {
				t.Fatalf("%q, late %v: %d tokens by segments, want %d", pattern, late, len(parts), len(ids))
			}
		}
	}
}
