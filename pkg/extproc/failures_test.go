package extproc

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

var begin = time.Unix(1000, 0)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

// TestPauses: how long an endpoint is avoided after failures and successes.
func TestPauses(t *testing.T) {
	e, other := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	var f failures
	check := func(second float64, want bool) {
		t.Helper()
		if got := slices.Contains(f.avoid(nil, at(second)), e); got != want {
			t.Errorf("avoided at %v s: %v, want %v", second, got, want)
		}
	}
	check(0, false)
	f.fail(e, at(0))
	f.fail(e, at(1)) // sent before the pause began
	f.fail(other, at(1))
	check(4.9, true)
	check(5, false)
	f.fail(e, at(6)) // again: twice as long
	check(15.9, true)
	check(16, false)
	f.fail(e, at(20))
	check(39.9, true)
	check(40, false)
	f.fail(e, at(50))
	check(79.9, true) // no longer than that
	check(80, false)
	f.worked(e, at(50)) // sent no later than the failure
	f.fail(e, at(81))
	check(110.9, true)
	f.worked(e, at(82))
	check(83, false)
	f.fail(e, at(83)) // begins anew
	check(87.9, true)
	check(88, false)
	f.fail(e, at(83+61)) // so does one after a long time
	check(83+61+4.9, true)
	check(83+61+5, false)
}

// TestFailuresAreBounded: what is remembered has a bound; what is over makes room.
func TestFailuresAreBounded(t *testing.T) {
	endpoint := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1)) }
	var f failures
	for i := range 2 * maxFailures {
		f.fail(endpoint(i), at(0))
	}
	if got := len(f.avoid(nil, at(1))); got != maxFailures {
		t.Errorf("%d are avoided, want %d", got, maxFailures)
	}
	late := endpoint(1000)
	f.fail(late, at(61))
	if got := f.avoid(nil, at(61)); !slices.Equal(got, []netip.AddrPort{late}) {
		t.Errorf("%v are avoided, want %v", got, late)
	}
}

// withServed names who served, as gateways do.
func withServed(m *request, endpoint string) *request {
	if endpoint != "" {
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
			"upstream.address": structpb.NewStringValue(endpoint),
		}}}
	}
	return m
}

// TestAnswersOfEndpoints: what an answer says of the picked endpoint, and where the
// request is booked from then on.
func TestAnswersOfEndpoints(t *testing.T) {
	const picked, other, stranger = "10.0.3.1:8000", "10.0.3.2:8000", "192.0.2.1:8000"
	for name, tc := range map[string]struct {
		status, served string
		avoided        []string
		booked         uint64 // the worker; 0: none
	}{
		"good":                        {"200", picked, nil, 31},
		"good, nobody says who":       {"200", "", nil, 31},
		"refused by the worker":       {"400", picked, nil, 31},
		"error of the worker":         {"500", picked, nil, 31},
		"503 of the worker":           {"503", picked, []string{picked}, 0},
		"503 of the gateway":          {"503", "", []string{picked}, 0},
		"another served":              {"200", other, []string{picked}, 32},
		"another could not either":    {"503", other, []string{picked, other}, 0},
		"an address between":          {"200", stranger, nil, 31},
		"an address between fails":    {"503", stranger, nil, 31},
		"no status that can be read":  {"", picked, nil, 31},
		"a status that cannot be had": {"5030", "", nil, 31},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, aggregates(2))
			e := l.open(t)
			e.routed(withSubset(headersMsg("POST", completions, false), structpb.NewStringValue(picked)), prompt16)
			e.send(withServed(answerHeadersMsg(tc.status, false), tc.served))
			e.want("response headers")
			got := []string{}
			for _, a := range l.server.failures.avoid(nil, time.Now()) {
				got = append(got, a.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.avoided) {
				t.Errorf("avoided are %v, want %v", got, tc.avoided)
			}
			if n := l.metric(t, "warmpath_endpoint_failures_total"); n != float64(len(tc.avoided)) {
				t.Errorf("%v failures counted, want %d", n, len(tc.avoided))
			}
			l.load.Read(func(k fleet.Key, f load.Figures) {
				want := load.Figures{}
				if k.ID == tc.booked {
					want = load.Figures{PrefillTokens: 16, DecodeBlocks: 4, Requests: 1}
				}
				if f != want {
					t.Errorf("worker %s has %+v, want %+v", k, f, want)
				}
			})
			e.send(answerBodyMsg("data", false))
			e.want("response body 4")
			if got := l.total().PrefillTokens; got != 0 {
				t.Errorf("%d tokens are to be computed after the first output", got)
			}
			e.cancel()
			l.waitIdle(t)
		})
	}
}

// TestFailingFastAttractsNobody: a worker that refuses at once has always the least
// load. After its first failure it gets one request each time it may be tried again.
func TestFailingFastAttractsNobody(t *testing.T) {
	now := begin
	l := startRig(t, aggregates(3), func(c *Config) { c.Now = func() time.Time { return now } })
	const bad = "10.0.3.1:8000"
	ask := func() bool {
		e := l.ask(t)
		reply := e.next()
		for !streamedBody(e.next()).GetEndOfStream() {
		}
		refused := destination(t, reply) == bad
		code := "200"
		if refused {
			code = "503"
		}
		e.send(answerHeadersMsg(code, refused))
		e.want("response headers")
		if refused {
			e.cancel() // the others go on for long
			eventually(t, "it ends", func() bool {
				return l.metric(t, "warmpath_streams") == l.metric(t, "warmpath_responses_total", "class", "2xx")
			})
		}
		return refused
	}
	failed := []int{}
	for second := range 60 {
		now = at(float64(second))
		for range 3 {
			if ask() {
				failed = append(failed, second)
			}
		}
	}
	// It is tried again when a pause of 5, 10, 20 and 30 s is over.
	if want := []int{0, 5, 15, 35}; !slices.Equal(failed, want) {
		t.Errorf("requests failed in seconds %v, want %v", failed, want)
	}
	// Where there is nobody else it is taken all the same.
	e := l.open(t)
	e.routed(withSubset(headersMsg("POST", completions, false), structpb.NewStringValue(bad)), newPrompt())
	if got := fmt.Sprint(len(l.server.failures.avoid(nil, now))); got != "1" {
		t.Errorf("%s are avoided, want 1", got)
	}
}
