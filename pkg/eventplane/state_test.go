package eventplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

func drawTime(t *rapid.T, what string) time.Time {
	ms := rapid.Int64Range(0, 1<<42).Draw(t, what)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func drawState(t *rapid.T) (stateHeader, []cursorState) {
	h := stateHeader{
		Made:      drawTime(t, "made"),
		Namespace: rapid.StringN(0, 20, maxStateName).Draw(t, "namespace"),
		Stream:    rapid.StringN(0, 20, maxStateName).Draw(t, "stream"),
		Sequence:  rapid.Uint64().Draw(t, "sequence"),
	}
	if rapid.Bool().Draw(t, "from a stream") {
		h.Created = time.Unix(0, rapid.Int64Range(1, 1<<61).Draw(t, "created")).UTC()
	}
	keys := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) fleet.Key {
		return fleet.Key{ID: rapid.Uint64().Draw(t, "id"), Rank: rapid.Uint32().Draw(t, "rank")}
	}), 0, 20, rapid.ID[fleet.Key]).Draw(t, "keys")
	var cursors []cursorState
	for _, k := range keys {
		cursors = append(cursors, cursorState{
			Key:    k,
			LastID: rapid.Uint64().Draw(t, "last"), Source: rapid.Uint64().Draw(t, "source"), Replaced: rapid.Uint64().Draw(t, "replaced"),
			Live: rapid.Uint64().Draw(t, "live"), Changed: drawTime(t, "changed"), Published: drawTime(t, "published"), Born: drawTime(t, "born"),
			Partial: rapid.Bool().Draw(t, "partial"), Unsure: rapid.Bool().Draw(t, "unsure"), Heard: rapid.Bool().Draw(t, "heard"),
		})
	}
	return h, cursors
}

// stateTail is a snapshot of the given bytes.
func stateTail(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// What is read is what was written, by worker, and the snapshot follows to the byte.
func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, cursors := drawState(t)
		tail := rapid.SliceOf(rapid.Byte()).Draw(t, "snapshot")
		var b bytes.Buffer
		if err := writeState(&b, h, cursors, stateTail(tail)); err != nil {
			t.Fatal(err)
		}
		gotHeader, got, rest, err := readState(iotest.OneByteReader(&b))
		if err != nil {
			t.Fatal(err)
		}
		if gotHeader != h {
			t.Errorf("header %+v, want %+v", gotHeader, h)
		}
		slices.SortFunc(cursors, func(a, b cursorState) int { return a.Key.Compare(b.Key) })
		if diff := cmp.Diff(cursors, got); diff != "" {
			t.Error(diff)
		}
		if after, err := io.ReadAll(rest); err != nil || !bytes.Equal(after, tail) {
			t.Errorf("the snapshot is %x, %v; want %x", after, err, tail)
		}
	})
}

// TestStateOfAnIndex: the rest of a state is what an index loads.
func TestStateOfAnIndex(t *testing.T) {
	from, k := index.New(), fleet.Key{ID: 7, Rank: 1}
	ev := stored(k, 1, 10, 11, 12)
	if err := from.Apply(&ev); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeState(&b, stateHeader{}, []cursorState{{Key: k, LastID: 1}}, from.Snapshot); err != nil {
		t.Fatal(err)
	}
	_, _, rest, err := readState(&b)
	if err != nil {
		t.Fatal(err)
	}
	to := index.New()
	if err := to.Load(rest); err != nil {
		t.Fatal(err)
	}
	if got, want := to.Held(k), from.Held(k); got != want {
		t.Errorf("the worker holds %v, want %v", got, want)
	}
}

func sampleState(t testing.TB) []byte {
	t.Helper()
	at := time.UnixMilli(1_700_000_000_123)
	b, err := encodeState(stateHeader{Made: at, Namespace: "dynamo", Stream: "warmpath", Created: at, Sequence: 9}, []cursorState{
		{Key: fleet.Key{ID: 2}, LastID: 3, Source: 4, Replaced: 5, Changed: at, Published: at, Born: at, Live: 3, Partial: true, Heard: true},
		{Key: fleet.Key{ID: 1, Rank: 8}, LastID: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDamagedStateIsRefused: every change of a bit, and every end that comes early.
func TestDamagedStateIsRefused(t *testing.T) {
	good := sampleState(t)
	for i := range good {
		if _, _, _, err := readState(bytes.NewReader(good[:i])); !errors.Is(err, errState) {
			t.Errorf("the first %d bytes: %v", i, err)
		}
		for bit := range 8 {
			bad := slices.Clone(good)
			bad[i] ^= 1 << bit
			if _, _, _, err := readState(bytes.NewReader(bad)); !errors.Is(err, errState) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	newer := slices.Clone(good)
	newer[len(stateMagic)]++
	if _, _, _, err := readState(bytes.NewReader(newer)); !errors.Is(err, errStateVersion) {
		t.Errorf("a newer version: %v", err)
	}
	broken := errors.New("broken")
	if _, _, _, err := readState(io.MultiReader(bytes.NewReader(good[:50]), iotest.ErrReader(broken))); !errors.Is(err, broken) || errors.Is(err, errState) {
		t.Errorf("a reader that fails: %v", err)
	}
}

// sealState puts a right checksum after damage.
func sealState(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)) }

// TestStateThatNobodyWrites has a right checksum and says what cannot be.
func TestStateThatNobodyWrites(t *testing.T) {
	empty, err := encodeState(stateHeader{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := empty[:len(empty)-8]
	head := body[:len(body)-4] // without the number of cursors
	cursor := func(c cursorState) []byte { return c.append(nil) }
	count := func(n uint32, cursors ...[]byte) []byte {
		return sealState(append(binary.LittleEndian.AppendUint32(slices.Clone(head), n), slices.Concat(cursors...)...))
	}
	one := cursor(cursorState{Key: fleet.Key{ID: 1}})
	flags, late := slices.Clone(one), slices.Clone(one)
	flags[len(flags)-1] = 8
	late[len(late)-2] = 0x7f
	for name, bad := range map[string][]byte{
		"too many":      count(maxStateCursors + 1),
		"more than are": count(2, one),
		"twice":         count(2, one, one),
		"flags":         count(1, flags),
		"time":          count(1, late),
		"name":          sealState(append(slices.Clone(body[:len(stateMagic)+1+stateNumbers]), 0xff, 0xff)),
	} {
		if _, _, _, err := readState(bytes.NewReader(bad)); !errors.Is(err, errState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, got, _, err := readState(bytes.NewReader(count(1, one))); err != nil || len(got) != 1 {
		t.Errorf("the good one: %v, %v", got, err)
	}
}

func TestStateThatIsNotWritten(t *testing.T) {
	k := fleet.Key{ID: 1}
	for name, c := range map[string]struct {
		h       stateHeader
		cursors []cursorState
	}{
		"too many workers": {cursors: make([]cursorState, maxStateCursors+1)},
		"a worker twice":   {cursors: []cursorState{{Key: k}, {Key: k}}},
		"a long name":      {h: stateHeader{Namespace: string(make([]byte, maxStateName+1))}},
	} {
		var b bytes.Buffer
		if err := writeState(&b, c.h, c.cursors, stateTail(nil)); err == nil || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, b.Len())
		}
	}
	broken := errors.New("broken")
	if err := writeState(io.Discard, stateHeader{}, nil, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a snapshot that fails: %v", err)
	}
}

// FuzzReadState: nothing panics, and what is accepted is written as it was read.
func FuzzReadState(f *testing.F) {
	good := sampleState(f)
	f.Add(good[:len(good)-8])
	empty, err := encodeState(stateHeader{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(empty[:len(empty)-8])
	f.Fuzz(func(t *testing.T, body []byte) {
		in := sealState(slices.Clone(body)) // else the checksum refuses all
		h, cursors, _, err := readState(bytes.NewReader(in))
		if err != nil {
			if !errors.Is(err, errState) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		out, err := encodeState(h, cursors)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(in, out) {
			t.Fatalf("read %x, wrote %x", in, out)
		}
	})
}
