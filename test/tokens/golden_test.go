package tokens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// golden is a string of a golden file.
type golden struct {
	Text       string   `json:"text"`
	Base64     []byte   `json:"base64"` // instead of Text, where it is not UTF-8
	IDs        []uint32 `json:"ids"`
	IDsSpecial []uint32 `json:"ids_special"`
}

// testGoldens checks that the oracles still say what the golden files say, and
// that the tokenizer says the same.
func testGoldens(t *testing.T, name string, ours encoder, ref *reference) {
	data, err := os.ReadFile(filepath.Join(root, "pkg/prompt/tokenizer/testdata/golden-"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Oracle  string
		Strings []golden
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if file.Oracle != ref.Oracle || len(file.Strings) < 200 {
		t.Errorf("%d strings by %s; the oracle is %s: run make golden-tokens", len(file.Strings), file.Oracle, ref.Oracle)
	}
	var items []item
	var want [][]uint32
	for _, g := range file.Strings {
		text := g.Text + string(g.Base64)
		items = append(items, item{text, false}, item{text, true})
		want = append(want, g.IDs, g.IDsSpecial)
	}
	for i, ids := range ref.ask(t, items) {
		if !slices.Equal(ids, want[i]) {
			t.Errorf("%q: the oracle says otherwise: run make golden-tokens", shorten(items[i].text))
		}
	}
	c := comparison{ours: ours, ref: ref, whole: true}
	c.encode(items)
	c.compare(t, items, want)
}
