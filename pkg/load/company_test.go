package load

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// TestCompany: who else is under way on the workers of a request.
func TestCompany(t *testing.T) {
	table := NewTable()
	p, d := fleet.Key{ID: 1}, fleet.Key{ID: 2}
	reserve := func(tokens int) *Reservation {
		b := Booking{PrefillTokens: tokens, PrefillKey: p, DecodeKey: d, Prefill: table.Worker(p), Decode: table.Worker(d)}
		table.Lock()
		defer table.Unlock()
		return table.Reserve(b)
	}
	want := func(what string, r *Reservation, prefill, decode bool) {
		t.Helper()
		if gotP, gotD := r.Company(); gotP != prefill || gotD != decode {
			t.Errorf("%s: %v, %v, want %v, %v", what, gotP, gotD, prefill, decode)
		}
	}
	a := reserve(10)
	want("alone", a, false, false)
	b := reserve(10)
	want("two", a, true, true)
	b.Release()
	want("alone again", a, false, false)
	c := reserve(0)
	want("one that computes nothing", a, false, true)
	want("seen from that one", c, true, true)
	a.Release()
	want("released", a, false, false)
	want("the one that is left", c, false, false)
}
