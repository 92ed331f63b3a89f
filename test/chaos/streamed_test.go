package chaos

import (
	"slices"
	"testing"
)

// TestStreamedPlane: a plane that reads the events from a stream loses nothing to a
// partition, and to a crash of the server only what is published until it is back.
func TestStreamedPlane(t *testing.T) {
	t.Parallel()
	r := newRig(t, serverOptions{jetStream: true, streams: true, pings: true})
	whole := func(s step) {
		t.Helper()
		if s.lost+s.dropped != 0 || len(s.tainted) != 0 {
			t.Errorf("lost %d events, dropped %d messages", s.lost, s.dropped)
		}
	}
	for range 2 {
		r.proxy.cut()
		r.crew.goOn(200)
		eventually(t, "the plane sees the cut", func() bool { return !r.picker.plane.Connected() })
		r.proxy.heal()
		whole(r.settle())

		r.proxy.hold()
		eventually(t, "the server gives the plane up", func() bool { return !r.server.serves(planeName) })
		r.proxy.resume()
		whole(r.settle())
	}
	whole(r.audit())
	from := r.crew.sent()
	r.server.kill()
	r.crew.speak()
	eventually(t, "the workers see that the server is gone", func() bool { return r.crew.refused() >= 50 })
	r.crew.rest()
	until := r.crew.sent()
	r.server.start()
	r.crew.reconnect()
	r.crew.speak()
	r.crew.goOn(200)
	s := r.settle()
	r.wantLoss(s)
	if slices.Min(s.gone) <= from || slices.Max(s.gone) > until {
		t.Errorf("messages %v were lost, and the server was away from %d to %d", s.gone, from, until)
	}
	r.mend(s.tainted)
}
