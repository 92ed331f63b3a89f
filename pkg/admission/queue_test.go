package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/admission"
)

var start = time.Unix(1000, 0)

// line is a queue and what is pushed into it.
type line struct {
	t *testing.T
	*admission.Queue
	now time.Time
}

func newLine(t *testing.T, policy admission.Policy, most int) *line {
	t.Helper()
	return &line{t: t, Queue: admission.New(policy, most), now: start}
}

// push lets a request wait for 10 s.
func (l *line) push(name string, priority int, flow string, change ...func(*admission.Item)) *admission.Item {
	l.t.Helper()
	it := &admission.Item{Priority: priority, Flow: flow, Arrival: l.now, Deadline: l.now.Add(10 * time.Second), Value: name}
	for _, f := range change {
		f(it)
	}
	if _, ok := l.Push(it); !ok {
		l.t.Fatalf("%s is refused", name)
	}
	return it
}

func tokens(n int) func(*admission.Item)    { return func(it *admission.Item) { it.Tokens = n } }
func kind(k uint64) func(*admission.Item)   { return func(it *admission.Item) { it.Kind = k } }
func name(it *admission.Item) (s string)    { s, _ = it.Value.(string); return s }
func named(it *admission.Item) fmt.Stringer { return stringer(func() string { return name(it) }) }

func names(items []*admission.Item) string {
	var all []string
	for _, it := range items {
		all = append(all, name(it))
	}
	return strings.Join(all, " ")
}

type stringer func() string

func (s stringer) String() string { return s() }

// round serves up to n requests of the kinds that have room, and returns whom.
func (l *line) round(n int, room ...uint64) string {
	var served []string
	for len(served) < n {
		it := l.Next(l.now)
		if it == nil {
			break
		}
		if !slices.Contains(room, it.Kind) {
			l.Busy(it)
			continue
		}
		l.Served(it)
		served = append(served, name(it))
	}
	l.EndRound()
	return strings.Join(served, " ")
}

func (l *line) want(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOrder(t *testing.T) {
	t.Run("priorities, then turns, then arrival", func(t *testing.T) {
		l := newLine(t, admission.FCFS, 100)
		l.push("a1", 0, "a")
		l.push("a2", 0, "a")
		l.push("a3", 0, "a")
		l.push("b1", 0, "b")
		l.push("high", 5, "a")
		l.push("c1", 0, "c")
		l.push("b2", 0, "b")
		l.want("all", l.round(100, 0), "high a1 b1 c1 a2 b2 a3")
	})
	t.Run("one that comes back waits for its turn", func(t *testing.T) {
		l := newLine(t, admission.FCFS, 100)
		for i := range 3 {
			l.push(fmt.Sprint("a", i), 0, "a")
		}
		for range 3 { // it always has one request only
			l.push("b", 0, "b")
			l.want("of two", l.round(2, 0)[3:], "b")
		}
	})
	t.Run("fewest tokens first", func(t *testing.T) {
		l := newLine(t, admission.WSPT, 100)
		l.push("large", 0, "", tokens(1000))
		l.push("small", 0, "", tokens(10))
		l.push("equal", 0, "", tokens(10))
		l.push("none", 0, "", tokens(-3))
		l.push("one", 0, "", tokens(1))
		l.want("all", l.round(100, 0), "none one small equal large")
	})
}

// TestLargeIsNotStarved: small requests that keep coming pass a large one for half
// of its time at most.
func TestLargeIsNotStarved(t *testing.T) {
	l := newLine(t, admission.WSPT, 100)
	l.push("large", 0, "", tokens(1000))
	for second := range 20 {
		l.push("small", 0, "", tokens(1))
		if got := l.round(1, 0); got == "large" {
			if second != 5 {
				t.Errorf("served after %d s, want 5", second)
			}
			return
		}
		l.now = l.now.Add(time.Second)
	}
	t.Error("the large one is never served")
}

// TestBlockedHead: the first one holds up those of its kind only, and is the first to
// be served when there is room for it.
func TestBlockedHead(t *testing.T) {
	l := newLine(t, admission.FCFS, 100)
	l.push("here1", 9, "a", kind(1))
	l.push("here2", 0, "a", kind(1))
	l.push("there1", 0, "a", kind(2))
	l.push("there2", 0, "b", kind(2))
	l.push("here3", 0, "b", kind(1))
	tried := 0
	for it := l.Next(l.now); it != nil; it = l.Next(l.now) {
		tried++
		l.Busy(it)
	}
	l.EndRound()
	if tried != 2 {
		t.Errorf("%d were tried while nobody had room, want one of each kind", tried)
	}
	l.want("room there", l.round(1, 2), "there1")
	l.want("room there", l.round(1, 2), "there2")
	l.want("room there", l.round(1, 2), "")
	l.push("there3", 0, "c", kind(2))
	l.want("room on both", l.round(1, 1, 2), "here1")
	l.want("room on both", l.round(100, 1, 2), "here2 here3 there3")
}

// TestFull: what is displaced, and what is refused.
func TestFull(t *testing.T) {
	l := newLine(t, admission.FCFS, 3)
	l.push("low1", 0, "a")
	low2 := l.push("low2", 0, "b")
	l.push("middle", 1, "a")
	if _, ok := l.Push(&admission.Item{Priority: 0}); ok {
		t.Error("one of the lowest priority was let in")
	}
	high := &admission.Item{Priority: 2, Value: "high"}
	if displaced, ok := l.Push(high); !ok || len(displaced) != 1 || displaced[0] != low2 {
		t.Errorf("displaced %v, %v; want low2", displaced, ok)
	}
	it := l.Next(l.now) // on trial: not to be displaced
	if it != high {
		t.Fatalf("next is %v", named(it))
	}
	l.Busy(it)
	if displaced, ok := l.Push(&admission.Item{Priority: 9, Value: "top"}); !ok || names(displaced) != "low1" {
		t.Errorf("displaced %v, %v; want low1", displaced, ok)
	}
	l.EndRound()
	l.want("all", l.round(100, 0), "top high middle")
}

// TestFlood: one flow cannot keep others out of a queue that it fills.
func TestFlood(t *testing.T) {
	l := newLine(t, admission.FCFS, 10)
	push := func(flow string) bool {
		_, ok := l.Push(&admission.Item{Flow: flow, Arrival: l.now, Deadline: l.now.Add(5 * time.Second), Value: flow})
		return ok
	}
	for range 10 {
		push("flood")
	}
	if push("flood") {
		t.Error("it displaces its own")
	}
	served, refused := map[string]int{}, 0
	for i := range 100 { // room for one; one asks for half of it, the others for four times all
		for range 4 {
			push("flood")
		}
		if i%2 == 0 && !push("one") {
			refused++
		}
		served[l.round(1, 0)]++
	}
	if refused > 0 || served["one"] < 48 {
		t.Errorf("%d of 50 of the small flow are refused, want none; served are %v, want all", refused, served)
	}
	l = newLine(t, admission.FCFS, 4)
	l.push("a1", 0, "a")
	a2 := l.push("a2", 0, "a")
	l.push("b1", 0, "b")
	l.push("b2", 0, "b")
	for _, flow := range []string{"a", "b"} {
		if push(flow) {
			t.Errorf("one more of %s is let in, of two equal flows", flow)
		}
	}
	l.Remove(a2)
	l.push("b3", 0, "b")
	if displaced, ok := l.Push(&admission.Item{Flow: "c", Value: "c1"}); !ok || names(displaced) != "b3" {
		t.Errorf("displaced %v, %v; want b3", displaced, ok)
	}
	if push("a") {
		t.Error("two flows change places for ever")
	}
}

// TestFullOfBytes: large bodies have a bound of their own, and whoever fills it gives way.
func TestFullOfBytes(t *testing.T) {
	const third = admission.MaxBytes / 3
	bytes := func(n int) func(*admission.Item) { return func(it *admission.Item) { it.Bytes = n } }
	push := func(l *line, name string, priority, n int, displaced string, ok bool) {
		t.Helper()
		got, gotOK := l.Push(&admission.Item{Priority: priority, Flow: name[:1], Bytes: n, Value: name})
		if gotOK != ok || names(got) != displaced {
			t.Errorf("%s: displaced %q, %v, want %q, %v", name, names(got), gotOK, displaced, ok)
		}
	}
	l := newLine(t, admission.FCFS, 100)
	l.push("a1", 0, "a", bytes(third))
	l.push("a2", 0, "a", bytes(third))
	l.push("a3", 0, "a", bytes(third))
	push(l, "a4", 0, third, "", false)
	push(l, "b1", 0, third, "a3", true)
	push(l, "c1", 0, third, "a2", true)
	push(l, "d1", 0, third, "", false)
	push(l, "d2", 0, 0, "", true)
	push(l, "e1", 1, 2*third, "c1 b1", true)
	l.want("all", l.round(100, 0), "e1 a1 d2")
	l.push("one that is larger than all", 0, "a", bytes(2*admission.MaxBytes))
	push(l, "b2", 0, 1, "one that is larger than all", true)
}

// TestManyFlows: fairness ids that come on top share one turn, so that inventing ids
// gains nothing beyond MaxFlows turns.
func TestManyFlows(t *testing.T) {
	l := newLine(t, admission.FCFS, 1000)
	for i := range admission.MaxFlows {
		l.push("own", 0, fmt.Sprint("id", i))
		l.push("own again", 0, fmt.Sprint("id", i))
	}
	for i := range 50 {
		l.push("shared", 0, fmt.Sprint("more", i))
	}
	first := l.round(admission.MaxFlows+1, 0)
	if n := strings.Count(first, "shared"); n != 1 || !strings.HasSuffix(first, " shared") {
		t.Errorf("ids without a flow of their own had %d turns in the first round, want one, the last", n)
	}
}

func BenchmarkPushServe(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := admission.New(admission.WSPT, n+1)
			items := make([]admission.Item, n+1)
			for i := range items {
				items[i] = admission.Item{Priority: i % 3, Flow: fmt.Sprint(i % 20), Tokens: i * 7919 % 1000}
				if i < n {
					q.Push(&items[i])
				}
			}
			free := &items[n]
			for b.Loop() {
				q.Push(free)
				free = q.Next(start)
				q.Served(free)
				q.EndRound()
			}
		})
	}
}
