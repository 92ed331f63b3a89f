package block_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
)

// recorded is the part of the recorded requests that hashes can be checked
// against. The values were published or computed by real Dynamo releases.
type recorded struct {
	BlockSize int `json:"block_size"`
	Requests  []struct {
		TokenIDs       []uint32      `json:"token_ids"`
		BlockHashes    []block.Hash  `json:"block_hashes"`
		SequenceHashes []block.Chain `json:"sequence_hashes"`

		Salt                 string        `json:"salt"`
		SaltedBlockHashes    []block.Hash  `json:"salted_block_hashes_1_4_on"`
		SaltedSequenceHashes []block.Chain `json:"salted_sequence_hashes_1_4_on"`
	} `json:"requests"`
	Oracle map[string]map[string][]block.Hash `json:"hash_oracle"`
}

func readRecorded(t *testing.T) *recorded {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "captures", "dynamo", "requests.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestRecordedRequests(t *testing.T) {
	r := readRecorded(t)
	if len(r.Requests) != 30 {
		t.Fatalf("%d requests, want 30", len(r.Requests))
	}
	layout := block.Layout{Size: r.BlockSize}
	salted := 0
	for i, req := range r.Requests {
		check := func(what string, seed block.Seed, wantHashes []block.Hash, wantChains []block.Chain) {
			t.Helper()
			hashes := layout.AppendHashes(nil, req.TokenIDs, seed)
			if !slices.Equal(hashes, wantHashes) {
				t.Errorf("request %d, %s: blocks %v, want %v", i, what, hashes, wantHashes)
			}
			if chains := block.AppendChains(nil, hashes); !slices.Equal(chains, wantChains) {
				t.Errorf("request %d, %s: chains %v, want %v", i, what, chains, wantChains)
			}
		}
		check("plain", block.NewSeed("", ""), req.BlockHashes, req.SequenceHashes)
		if req.Salt != "" {
			salted++
			check("salted", block.NewSeed("", req.Salt), req.SaltedBlockHashes, req.SaltedSequenceHashes)
		}
	}
	if salted != 3 {
		t.Errorf("%d salted requests, want 3", salted)
	}
}

func TestRecordedOracle(t *testing.T) {
	hash := func(from, to uint32, layout block.Layout, adapter, salt string) []block.Hash {
		return layout.AppendHashes(nil, ids(from, to), block.NewSeed(adapter, salt))
	}
	whole := func(n uint32) []block.Hash { return hash(0, n-1, block.Layout{Size: int(n)}, "", "") }
	four := block.Layout{Size: 4}
	plain := block.NewSeed("", "")
	ours := map[string][]block.Hash{
		"1..4 bs4":                        hash(1, 4, four, "", ""),
		"1..12 bs4":                       hash(1, 12, four, "", ""),
		"0..0":                            whole(1),
		"0..3":                            whole(4),
		"0..15":                           whole(16),
		"0..31":                           whole(32),
		"0..63":                           whole(64),
		"0..127":                          whole(128),
		"0..255":                          whole(256),
		"lora my-adapter":                 hash(1, 4, four, "my-adapter", ""),
		"lora empty":                      hash(1, 4, four, "", ""),
		"mm 42":                           {block.HashWithMedia(ids(1, 4), plain, []uint64{42})},
		"mm 42,7":                         {block.HashWithMedia(ids(1, 4), plain, []uint64{42, 7})},
		"eagle 1..9 bs4":                  hash(1, 9, block.Layout{Size: 4, Eagle: true}, "", ""),
		"cache_namespace tenant-a":        hash(1, 4, four, "", "tenant-a"),
		"cache_namespace empty":           hash(1, 4, four, "", ""),
		"cache_namespace tenant-a + lora": hash(1, 4, four, "my-adapter", "tenant-a"),
	}
	for version, count := range map[string]int{"1.2.1": 14, "1.6.1": 17} {
		answers := readRecorded(t).Oracle[version]
		if len(answers) != count {
			t.Errorf("Dynamo %s: %d answers recorded, want %d", version, len(answers), count)
		}
		for name, want := range answers {
			if got, known := ours[name]; !known || !slices.Equal(got, want) {
				t.Errorf("Dynamo %s, %q: %v, want %v", version, name, got, want)
			}
		}
	}
}
