package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// vectors returns the payloads that testdata/vectors.py wrote, by name.
func vectors(t testing.TB) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for line := range bytes.SplitSeq(bytes.TrimSpace(data), []byte("\n")) {
		var v struct {
			Name string
			Data []byte
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		all[v.Name] = v.Data
	}
	return all
}

const worker = 1186445869714687

// newDecoder returns a decoder of rank 5.
func newDecoder(t testing.TB, size int) *Decoder {
	t.Helper()
	d, err := NewDecoder(Config{WorkerID: worker, Rank: 5, BlockSize: size})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// collect decodes a message and returns all that apply saw.
func collect(d *Decoder, msg []byte) (Batch, []kvevent.Event, error) {
	var got []kvevent.Event
	batch, err := d.Decode(msg, func(e *kvevent.Event) {
		c := *e
		c.Blocks = append([]kvevent.Block(nil), e.Blocks...)
		c.Gone = append([]kvevent.EngineHash(nil), e.Gone...)
		c.Media = append([]kvevent.Media(nil), e.Media...)
		got = append(got, c)
	})
	return batch, got, err
}

// Hashes of dynamo.md 2.6.
const (
	hash1234    = 14643705804678351452
	hash5678    = 16777012769546811212
	hashAdapter = 15633847640104431966
	hashSalt    = 5738685477468498325
	hashBoth    = 15344109623294177393
	hashMedia42 = 14000361058806882387
	hashMedia2  = 6295130183325757331 // 7 and 42
)

type vector struct {
	batch  Batch
	events []kvevent.Event
	stats  Stats
	why    string // part of LastSkip
}

func at(rank uint32) Batch { return Batch{Time: 1789095808.75, Rank: rank} }

// put is a stored event of a block; the parent is 0 for none.
func put(parent kvevent.EngineHash, blocks ...kvevent.Block) kvevent.Event {
	return kvevent.Event{WorkerID: worker, Copies: true, Kind: kvevent.Stored, Parent: parent, HasParent: parent != 0, Blocks: blocks}
}

func gone(tier kvevent.Tier, hashes ...kvevent.EngineHash) kvevent.Event {
	return kvevent.Event{WorkerID: worker, Copies: true, Kind: kvevent.Removed, Tier: tier, Gone: hashes}
}

func media(e kvevent.Event, m ...kvevent.Media) kvevent.Event {
	e.Media = m
	return e
}

func ranked(rank uint32, e kvevent.Event) kvevent.Event {
	e.Rank = rank
	return e
}

// list is for readability.
func list(events ...kvevent.Event) []kvevent.Event { return events }

var (
	block11 = kvevent.Block{Engine: 11, Hash: hash1234}
	block13 = kvevent.Block{Engine: 13, Hash: hash1234}
	cleared = kvevent.Event{WorkerID: worker, Copies: true, Kind: kvevent.Cleared}
	just11  = list(put(0, block11))
	just13  = list(put(0, block13))
)

const digestLow = 0x18191a1b1c1d1e1f

var wantVectors = map[string]vector{
	"map":                     {at(0), list(put(0, kvevent.Block{Engine: 15760518052499183552, Hash: hash1234})), Stats{Events: 1}, ""},
	"array":                   {at(0), list(put(10, block11, kvevent.Block{Engine: 12, Hash: hash5678})), Stats{Events: 1}, ""},
	"array, twelve values":    {at(0), just11, Stats{Events: 1}, ""},
	"short array":             {at(0), just11, Stats{Events: 1}, ""},
	"short array, other size": {at(0), nil, Stats{OtherSizes: 1}, ""},
	"too short array":         {at(0), list(gone(0, 7)), Stats{Events: 1, BadEvents: 1}, "no block_size"},
	"long array":              {at(0), just11, Stats{Events: 1, UnknownFields: 2}, ""},
	"removed and cleared": {
		at(0),
		list(gone(kvevent.Host, 1, 1<<64-1, digestLow), gone(0), cleared, cleared),
		Stats{Events: 4},
		"",
	},
	"map batch":             {at(7), list(ranked(7, put(0, block11))), Stats{Events: 1}, ""},
	"map batch, rank first": {Batch{Rank: 7}, list(ranked(7, put(0, block11))), Stats{Events: 1, UnknownFields: 1}, ""},
	"no rank":               {at(5), list(ranked(5, put(0, block11))), Stats{Events: 1}, ""},
	"nil rank":              {at(5), list(ranked(5, put(0, block11))), Stats{Events: 1}, ""},
	"whole seconds":         {Batch{1789095808, 1}, nil, Stats{}, ""},
	"long batch":            {Batch{1.5, 1}, nil, Stats{UnknownFields: 2}, ""},
	"digests": {at(0), list(put(0x0001020304050607,
		kvevent.Block{Engine: digestLow, Hash: hash1234}, kvevent.Block{Engine: 0x0102, Hash: hash5678},
		kvevent.Block{Engine: 1<<64 - 1, Hash: hash1234}, kvevent.Block{Engine: 1 << 63, Hash: hash5678})), Stats{Events: 1}, ""},
	"parent 0":                           {at(0), just11, Stats{Events: 1}, ""},
	"adapter":                            {at(0), list(put(0, kvevent.Block{Engine: 11, Hash: hashAdapter})), Stats{Events: 1}, ""},
	"salt":                               {at(0), list(put(0, kvevent.Block{Engine: 11, Hash: hashSalt})), Stats{Events: 1}, ""},
	"salt and adapter, repeated as keys": {at(0), list(put(0, kvevent.Block{Engine: 11, Hash: hashBoth})), Stats{Events: 1}, ""},
	"media": {
		at(0),
		list(media(put(0, block11, kvevent.Block{Engine: 12, Hash: hashMedia2}), kvevent.Media{Block: 1, Hash: 42}, kvevent.Media{Block: 1, Hash: 7})),
		Stats{Events: 1},
		"",
	},
	"bare media":       {at(0), list(media(put(0, kvevent.Block{Engine: 11, Hash: hashMedia42}), kvevent.Media{Hash: 42})), Stats{Events: 1}, ""},
	"other keys":       {at(0), list(put(0, block11, kvevent.Block{Engine: 12, Hash: hash5678})), Stats{Events: 1, IgnoredKeys: 8}, ""},
	"keys of no block": {at(0), just11, Stats{Events: 1, IgnoredKeys: 2}, ""},
	"other groups": {at(0), list(
		put(0, kvevent.Block{Engine: 2, Hash: hash1234}), put(0, kvevent.Block{Engine: 4, Hash: hash1234}), gone(0, 2), gone(0, 9),
		put(0, kvevent.Block{Engine: 6, Hash: hash1234}), gone(0, 6),
	), Stats{Events: 6, OtherGroups: 5}, ""},
	"media of all names": {at(0), list(
		gone(0, 0), gone(0, 1), gone(0, 2), gone(kvevent.Host, 3), gone(kvevent.Host, 4), gone(kvevent.Host, 5),
		gone(kvevent.Disk, 6), gone(kvevent.Disk, 7), gone(kvevent.Disk, 8),
		gone(kvevent.External, 9), gone(kvevent.External, 10), gone(kvevent.External, 11), gone(kvevent.External, 12),
		gone(kvevent.NumTiers, 13),
	), Stats{Events: 14, UnknownTiers: 1}, ""},
	"placeholder":               {at(0), just13, Stats{Events: 1, Placeholders: 1}, ""},
	"odd spans":                 {at(0), just13, Stats{Events: 1, OddSpans: 2}, ""},
	"own parent":                {at(0), just13, Stats{Events: 1, BadEvents: 1}, "own parent"},
	"unknown types":             {at(0), just13, Stats{Events: 1, UnknownEvents: 2}, ""},
	"unknown fields, any order": {at(0), just11, Stats{Events: 1, UnknownFields: 2}, ""},
	"bad events":                {at(0), just13, Stats{Events: 1, BadEvents: 25}, "group_idx: negative"},
}

// TestVectors decodes what another encoder wrote.
func TestVectors(t *testing.T) {
	all := vectors(t)
	for name, want := range wantVectors {
		t.Run(name, func(t *testing.T) {
			if all[name] == nil {
				t.Fatal("no such vector")
			}
			d := newDecoder(t, 4)
			batch, got, err := collect(d, all[name])
			if err != nil || batch != want.batch {
				t.Errorf("%+v, %v; want %+v", batch, err, want.batch)
			}
			if diff := cmp.Diff(want.events, got); diff != "" {
				t.Error(diff)
			}
			want.stats.Messages = 1
			if d.Stats() != want.stats {
				t.Errorf("stats %+v, want %+v; %v", d.Stats(), want.stats, d.LastSkip())
			}
			if (d.LastSkip() == nil) != (want.why == "") || want.why != "" && !strings.Contains(d.LastSkip().Error(), want.why) {
				t.Errorf("skipped for %v", d.LastSkip())
			}
		})
	}
}

// TestTokenSizes: integers of every width are the tokens they mean.
func TestTokenSizes(t *testing.T) {
	d := newDecoder(t, 8)
	tokens := []uint32{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1}
	want := block.Layout{Size: 8}.AppendHashes(nil, tokens, block.NewSeed("", ""))
	_, got, err := collect(d, vectors(t)["all token sizes"])
	if err != nil || !cmp.Equal(got, list(put(0, kvevent.Block{Engine: 11, Hash: want[0]}))) {
		t.Errorf("%+v, %v; want hash %d", got, err, want)
	}
	if d.LastSize() != 4 || d.Stats().OtherSizes != 1 {
		t.Errorf("other size %d, %+v", d.LastSize(), d.Stats())
	}
}

// TestRemembered: what is kept for people.
func TestRemembered(t *testing.T) {
	d := newDecoder(t, 4)
	all := vectors(t)
	for _, name := range []string{"media of all names", "short array, other size", "other groups"} {
		if _, _, err := collect(d, all[name]); err != nil {
			t.Fatal(err)
		}
	}
	if d.LastMedium() != "FS" || d.LastSize() != 2 {
		t.Errorf("medium %q, size %d", d.LastMedium(), d.LastSize())
	}
	removal := []Event{{Kind: kvevent.Removed, Hashes: []kvevent.EngineHash{1}, Group: 1, HasGroup: true}}
	msg, err := AppendBatch(nil, MapForm, Batch{}, removal)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := collect(d, msg); got != nil {
		t.Error("a removal in a sliding window was applied")
	}
	d.Restarted()
	if _, got, _ := collect(d, msg); len(got) != 1 {
		t.Error("a new engine has the groups of the old one")
	}
}

func TestNewDecoderRefuses(t *testing.T) {
	for _, size := range []int{0, -1, 1 << 31} {
		if _, err := NewDecoder(Config{BlockSize: size}); err == nil {
			t.Errorf("block size %d was accepted", size)
		}
	}
}

// TestDamage: a message cut anywhere is an error and nothing of it is applied; a
// wrong byte anywhere never panics.
func TestDamage(t *testing.T) {
	for name, msg := range vectors(t) {
		if strings.HasPrefix(name, "capture") && !strings.HasSuffix(name, "0") {
			continue // as good as the others
		}
		d := newDecoder(t, 4)
		for i := range msg {
			if _, got, err := collect(d, msg[:i]); err == nil || got != nil {
				t.Fatalf("%s: cut at %d of %d: %d events, %v", name, i, len(msg), len(got), err)
			}
			for _, flip := range []byte{0x01, 0x10, 0x80, 0xff} {
				damaged := bytes.Clone(msg)
				damaged[i] ^= flip
				_, _, _ = collect(d, damaged)
			}
		}
		if s := d.Stats(); s.Messages != uint64(5*len(msg)) || s.BadMessages < uint64(len(msg)) {
			t.Errorf("%s: %+v", name, s)
		}
		_, want, _ := collect(newDecoder(t, 4), msg)
		_, got, err := collect(newDecoder(t, 4), append(bytes.Clone(msg), 0))
		if !errors.Is(err, errLeftovers) || !cmp.Equal(got, want) {
			t.Errorf("%s: with a byte more: %v", name, err)
		}
	}
}
