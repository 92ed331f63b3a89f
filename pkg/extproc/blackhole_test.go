package extproc

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// prefiller is the prefill worker that a reply names, empty for none.
func prefiller(reply *response) string {
	for _, h := range reply.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-prefiller-host-port" {
			return headerValue(h.GetHeader())
		}
	}
	return ""
}

// askAll sends requests one after the other, three a second for a while, and answers
// each with the status that its workers have. It returns how many were not answered 200.
func (l *live) askAll(t *testing.T, now *time.Time, seconds int, status func(decode, prefill string) string) (bad int) {
	t.Helper()
	for i := range 3 * seconds {
		*now = at(float64(i) / 3)
		e := l.ask(t)
		reply := e.next()
		for !streamedBody(e.next()).GetEndOfStream() {
		}
		code := status(destination(t, reply), prefiller(reply))
		e.send(answerHeadersMsg(code, code != "200"))
		e.want("response headers")
		if code == "200" {
			continue // it goes on for long
		}
		bad++
		e.cancel()
		eventually(t, "it ends", func() bool { return l.metric(t, "warmpath_streams") == float64(i+1-bad) })
	}
	return bad
}

// TestDeadPrefill: decode workers answer 503 for a prefill worker that is dead. It gets
// two requests, and one each time it may be tried again; they stay in use.
func TestDeadPrefill(t *testing.T) {
	for _, decodes := range []int{1, 2, 4} {
		now := begin
		pool := []fleet.Worker{worker(11, fleet.Prefill, "10.0.1.1:8000"), worker(12, fleet.Prefill, "10.0.1.2:8000")}
		for i := range decodes {
			pool = append(pool, worker(uint64(21+i), fleet.Decode, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 2, byte(i + 1)}), 8000).String()))
		}
		l := startRig(t, pool, func(c *Config) { c.Now = func() time.Time { return now } })
		bad := l.askAll(t, &now, 30, func(_, prefill string) string {
			for _, e := range l.server.failures.avoid(nil, l.picker.Fleet(), now) {
				if e.String() != "10.0.1.1:8000" {
					t.Errorf("%d decode workers: %s is avoided at %v", decodes, e, now.Sub(begin))
				}
			}
			if prefill == "10.0.1.1:8000" {
				return "503"
			}
			return "200"
		})
		if bad < 2 || bad > 6 {
			t.Errorf("%d decode workers: %d of 90 requests went to the dead prefill worker, want 2 to 6", decodes, bad)
		}
	}
}

// TestDeadDecode: a decode worker of a pair that is dead. Prefill workers stay in use.
func TestDeadDecode(t *testing.T) {
	for _, prefills := range []int{1, 2, 4} {
		now := begin
		pool := []fleet.Worker{worker(21, fleet.Decode, "10.0.2.1:8000"), worker(22, fleet.Decode, "10.0.2.2:8000")}
		for i := range prefills {
			pool = append(pool, worker(uint64(11+i), fleet.Prefill, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}), 8000).String()))
		}
		l := startRig(t, pool, func(c *Config) { c.Now = func() time.Time { return now } })
		bad := l.askAll(t, &now, 30, func(decode, _ string) string {
			if decode == "10.0.2.1:8000" {
				return "503"
			}
			return "200"
		})
		if bad < 2 || bad > 7 {
			t.Errorf("%d prefill workers: %d of 90 requests went to the dead decode worker, want 2 to 7", prefills, bad)
		}
		for _, e := range l.server.failures.avoid(nil, l.picker.Fleet(), now) {
			if e.String() != "10.0.2.1:8000" {
				t.Errorf("%d prefill workers: %s is avoided at the end", prefills, e)
			}
		}
	}
}

// TestInternalErrorsAttractNobody: a worker that answers 500 at once has always the
// least load.
func TestInternalErrorsAttractNobody(t *testing.T) {
	now := begin
	l := startRig(t, aggregates(8), func(c *Config) { c.Now = func() time.Time { return now } })
	bad := l.askAll(t, &now, 60, func(decode, _ string) string {
		if decode == "10.0.3.1:8000" {
			return "500"
		}
		return "200"
	})
	if bad < 3 || bad > 6 {
		t.Errorf("%d of 180 requests went to the broken worker, want 3 to 6", bad)
	}
}

// surge is workers that refuse with 503 while 20 requests are in their queue, under 93%
// of what they can do and, once, a burst.
type surge struct {
	*rig
	f       failures
	on      bool // refusals are learned from
	now     time.Time
	rng     *rand.Rand
	queues  map[netip.AddrPort][]job
	scratch pick.Scratch
}

type job struct {
	load *load.Reservation
	sent time.Time
	done time.Time
}

func (s *surge) finish() {
	for e, q := range s.queues {
		for len(q) > 0 && !q[0].done.After(s.now) {
			q[0].load.PrefillDone(q[0].done)
			q[0].load.Release()
			s.f.worked(q[0].sent, e)
			q = q[1:]
		}
		s.queues[e] = q
	}
}

// ask sends one request, and says whether it was served.
func (s *surge) ask(t *testing.T) bool {
	req := pick.Request{Tokens: 1000}
	if s.on {
		req.Avoid = s.f.avoid(nil, s.picker.Fleet(), s.now)
	}
	d, err := s.picker.Pick(&req, s.now, s.rng.IntN, &s.scratch)
	if err != nil {
		t.Fatal(err)
	}
	e := d.Decode.Endpoint
	q := s.queues[e]
	if len(q) >= 20 {
		_, busy := d.Reservation.Company()
		d.Reservation.Release()
		s.f.fail(outcome{sent: s.now, endpoint: party{e, busy}, severity: unserved, own: true}, s.now)
		return false
	}
	from := s.now
	if len(q) > 0 {
		from = q[len(q)-1].done
	}
	s.queues[e] = append(q, job{d.Reservation, s.now, from.Add(100 * time.Millisecond)})
	return true
}

// run returns how many requests are refused, from the burst at 10 s on and after 20 s.
func (s *surge) run(t *testing.T) (all, late int) {
	s.now, s.rng, s.queues = begin, rand.New(rand.NewPCG(1, 9)), map[netip.AddrPort][]job{}
	burst := false
	for s.now.Before(at(60)) {
		s.now = s.now.Add(time.Duration(s.rng.ExpFloat64() / 74 * float64(time.Second)))
		s.finish()
		n := 1
		if !burst && s.now.After(at(10)) {
			burst, n = true, 200
		}
		for range n {
			if s.ask(t) {
				continue
			}
			all++
			if s.now.After(at(20)) {
				late++
			}
		}
	}
	return all, late
}

// TestRefusalsDoNotSpread: workers that refuse under load are no worse off when the
// picker learns from it: those that are left could not take it all.
func TestRefusalsDoNotSpread(t *testing.T) {
	without, late := (&surge{rig: newRig(t, aggregates(8))}).run(t)
	with, lateWith := (&surge{rig: newRig(t, aggregates(8)), on: true}).run(t)
	t.Logf("refused: %d, %d of them late; without avoiding workers %d, %d of them late", with, lateWith, without, late)
	if without == 0 {
		t.Error("nothing was refused: the test tells nothing")
	}
	if with > without+without/10 || lateWith > late {
		t.Errorf("%d are refused, %d of them late, want no more than %d and %d", with, lateWith, without, late)
	}
}
