package parity

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		name          string
		local, engine []uint32
		partial, same bool
		token         int
	}{
		{"both empty", nil, nil, false, true, 0},
		{"same", []uint32{1, 2}, []uint32{1, 2}, false, true, 2},
		{"first", []uint32{9, 2}, []uint32{1, 2}, false, false, 0},
		{"last", []uint32{1, 2, 3}, []uint32{1, 2, 4}, false, false, 2},
		{"here shorter", []uint32{1, 2}, []uint32{1, 2, 3}, false, false, 2},
		{"here shorter, partial", []uint32{1, 2}, []uint32{1, 2, 3}, true, true, 2},
		{"here longer, partial", []uint32{1, 2, 3}, []uint32{1, 2}, true, false, 2},
		{"other, partial", []uint32{1, 3}, []uint32{1, 2, 3}, true, false, 1},
		{"nothing, partial", nil, []uint32{1}, true, true, 0},
	} {
		d, same := Compare(tc.local, tc.engine, tc.partial)
		if want := (Diff{tc.token, len(tc.local), len(tc.engine)}); same != tc.same || d != want {
			t.Errorf("%s: %+v, %v; want %+v, %v", tc.name, d, same, want, tc.same)
		}
	}
}

// TestCompareIsEquality: with whole prompts it is slices.Equal, with partial
// ones it is that of a prefix.
func TestCompareIsEquality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 6)
		local, engine := ids.Draw(t, "local"), ids.Draw(t, "engine")
		if _, same := Compare(local, engine, false); same != slices.Equal(local, engine) {
			t.Fatalf("whole: %v", same)
		}
		prefix := len(local) <= len(engine) && slices.Equal(local, engine[:len(local)])
		if _, same := Compare(local, engine, true); same != prefix {
			t.Fatalf("partial: %v", same)
		}
	})
}
