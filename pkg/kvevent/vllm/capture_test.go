package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// op is what one block goes through. Streams are compared by it, because workers
// split and merge events.
type op struct {
	Rank   uint32
	Tier   string
	Kind   kvevent.Kind
	Engine kvevent.EngineHash
	Parent string // of a stored block, "" for none
	Hash   block.Hash
	Media  []uint64
}

// published is the part of a published event that matters.
type published struct {
	Rank uint32 `json:"dp_rank"`
	Tier string `json:"storage_tier"`
	Data json.RawMessage
}

type publishedChange struct {
	Stored *struct {
		Parent *uint64 `json:"parent_hash"`
		Blocks []struct {
			Engine kvevent.EngineHash `json:"block_hash"`
			Hash   block.Hash         `json:"tokens_hash"`
			Extra  *struct {
				Objects []struct {
					Hash uint64 `json:"mm_hash"`
				} `json:"mm_objects"`
			} `json:"mm_extra_info"`
		}
	}
	Removed *struct {
		Hashes []kvevent.EngineHash `json:"block_hashes"`
	}
}

// opsOf returns what a published event did.
func opsOf(t *testing.T, p published) (ops []op) {
	t.Helper()
	base := op{Rank: p.Rank, Tier: p.Tier}
	if string(p.Data) == `"cleared"` {
		base.Kind = kvevent.Cleared
		return []op{base}
	}
	var c publishedChange
	if err := json.Unmarshal(p.Data, &c); err != nil {
		t.Fatal(err)
	}
	if c.Removed != nil {
		base.Kind = kvevent.Removed
		for _, h := range c.Removed.Hashes {
			base.Engine = h
			ops = append(ops, base)
		}
		return ops
	}
	base.Kind = kvevent.Stored
	if c.Stored.Parent != nil {
		base.Parent = fmt.Sprint(*c.Stored.Parent)
	}
	for _, b := range c.Stored.Blocks {
		base.Engine, base.Hash, base.Media = b.Engine, b.Hash, nil
		if b.Extra != nil {
			for _, o := range b.Extra.Objects {
				base.Media = append(base.Media, o.Hash)
			}
		}
		ops = append(ops, base)
		base.Parent = fmt.Sprint(uint64(b.Engine))
	}
	return ops
}

// ledger does what a Dynamo worker does between its engine and the wire: it counts
// how often a block is stored, and passes only the removal of the last copy
// (dynamo.md 1.4).
type ledger map[string]int

// ops returns what a worker would publish of an event that was decoded.
func (l ledger) ops(e *kvevent.Event) (ops []op) {
	if e.Tier == kvevent.NumTiers {
		return nil // dropped since 1.5
	}
	base := op{Rank: e.Rank, Tier: e.Tier.String(), Kind: e.Kind}
	if e.HasParent {
		base.Parent = fmt.Sprint(uint64(e.Parent))
	}
	for i, b := range e.Blocks {
		l[base.key(b.Engine)]++
		base.Engine, base.Hash, base.Media = b.Engine, b.Hash, nil
		for _, m := range e.Media {
			if m.Block == i {
				base.Media = append(base.Media, m.Hash)
			}
		}
		ops = append(ops, base)
		base.Parent = fmt.Sprint(uint64(b.Engine))
	}
	for _, h := range e.Gone {
		if l[base.key(h)]--; l[base.key(h)] <= 0 {
			base.Engine = h
			ops = append(ops, base)
		}
	}
	if e.Kind == kvevent.Cleared {
		clear(l)
		ops = append(ops, base)
	}
	return ops
}

func (o op) key(h kvevent.EngineHash) string { return fmt.Sprint(o.Rank, o.Tier, uint64(h)) }

type captureCase struct {
	I         int
	Via, Case string
	Rank      uint32 `json:"dp_rank"`
	Published []published
	Args      struct {
		Tokens  []uint32             `json:"token_ids"`
		Hashes  []kvevent.EngineHash `json:"block_hashes"`
		Parent  kvevent.EngineHash   `json:"parent_hash"`
		Adapter string               `json:"lora_name"`
		Salt    string               `json:"cache_salt"`
		Eagle   bool                 `json:"is_eagle"`
		Media   []struct {
			Objects []struct {
				Hash    uint64      `json:"mm_hash"`
				Offsets [][2]uint32 `json:"offsets"`
			} `json:"mm_objects"`
		} `json:"block_mm_infos"`
	}
}

func readCases(t *testing.T, version string) []captureCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../testdata/captures/dynamo", version+"-engine-events.run.json"))
	if err != nil {
		t.Fatal(err)
	}
	var run struct{ Cases []captureCase }
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&run); err != nil {
		t.Fatal(err)
	}
	return run.Cases
}

// TestCaptures: from the bytes that an engine gave a real Dynamo worker comes what
// that worker published. What a release does differently is named.
func TestCaptures(t *testing.T) {
	for _, c := range []struct {
		version string
		cases   int
		other   []string // we do what 1.6.1 does
	}{
		{"1.2.1", 39, []string{"mm plain string key", "mm two keys", "medium CPU", "medium unknown word"}},
		{"1.6.1", 39, nil},
	} {
		t.Run(c.version, func(t *testing.T) {
			all, d, l, n := vectors(t), newDecoder(t, 16), ledger{}, 0
			for _, k := range readCases(t, c.version) {
				if k.Via != "zmq" {
					continue
				}
				n++
				var want, got []op
				for _, p := range k.Published {
					want = append(want, opsOf(t, p)...)
				}
				_, events, err := collect(d, all[fmt.Sprintf("capture %s %d", c.version, k.I)])
				if err != nil {
					t.Fatalf("%d, %s: %v", k.I, k.Case, err)
				}
				for i := range events {
					got = append(got, l.ops(&events[i])...)
				}
				switch {
				case k.Case == "32-byte hash":
					// Every Dynamo release loses the batch; the digest is good all the same.
					if len(want) > 0 || len(got) != 1 || got[0].Engine != digestLow {
						t.Errorf("digest: %+v, published %+v", got, want)
					}
				case slices.Contains(c.other, k.Case):
					if cmp.Equal(want, got) {
						t.Errorf("%d, %s: no difference", k.I, k.Case)
					}
				default:
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%d, %s (-published +decoded):\n%s", k.I, k.Case, diff)
					}
				}
			}
			if n != c.cases {
				t.Errorf("%d cases, want %d", n, c.cases)
			}
			if s := d.Stats(); s.OtherSizes != 1 || s.OddSpans != 1 || s.OtherGroups != 2 || s.BadEvents != 1 || s.UnknownTiers != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestDirectCaptures: what a worker published of tokens that it was given directly
// comes of the same tokens in an engine's form: adapters, salts, objects.
func TestDirectCaptures(t *testing.T) {
	d, n := newDecoder(t, 16), 0
	for _, k := range readCases(t, "1.6.1") {
		if k.Via != "publish_stored" || k.Args.Eagle {
			continue // engines do not send the token after a block
		}
		n++
		e := Event{
			Kind: kvevent.Stored, Hashes: k.Args.Hashes, Tokens: k.Args.Tokens, BlockSize: 16, Medium: "GPU",
			Parent: k.Args.Parent, HasParent: k.Args.Parent != 0, Adapter: k.Args.Adapter, Salt: k.Args.Salt,
		}
		for i, m := range k.Args.Media {
			for _, o := range m.Objects {
				e.Media = append(e.Media, kvevent.Media{Block: i, Hash: o.Hash, Offsets: o.Offsets})
			}
		}
		msg, err := AppendBatch(nil, MapForm, Batch{Rank: k.Rank}, []Event{e})
		if err != nil {
			t.Fatal(err)
		}
		_, events, err := collect(d, msg)
		if err != nil || len(events) != 1 || len(k.Published) != 1 {
			t.Fatalf("%s: %d events, %v", k.Case, len(events), err)
		}
		if diff := cmp.Diff(opsOf(t, k.Published[0]), ledger{}.ops(&events[0])); diff != "" {
			t.Errorf("%s (-published +decoded):\n%s", k.Case, diff)
		}
	}
	if n != 6 {
		t.Errorf("%d cases, want 6", n)
	}
}
