package extproc

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// pace is what is learned of a worker from requests whose output comes after a second.
func paceAfter(t *testing.T, m modes, answer *request, body ...*request) float64 {
	t.Helper()
	now := begin
	l := startRig(t, aggregates(1), func(c *Config) { c.Now = func() time.Time { return now } })
	for range 8 {
		e := l.open(t)
		e.send(m.first(headersMsg("POST", completions, false)))
		e.send(bodyMsg(tokenBody(count(10_000*prompts.Add(1), 400), `"stream":true,`), true))
		e.next()
		e.next()
		now = now.Add(time.Second)
		e.send(answer)
		e.next()
		for _, b := range body {
			e.send(b)
			e.next()
		}
		if got := l.total().PrefillTokens; got != 0 {
			t.Errorf("%d tokens are to be computed after the output", got)
		}
		e.cancel()
		eventually(t, "it ends", func() bool { return l.metric(t, "warmpath_streams") == 0 })
	}
	var pace float64
	l.load.Read(func(_ fleet.Key, f load.Figures) { pace = f.SecondsPerToken })
	return pace
}

// TestOnlyStreamsTeach: the pace of a worker is learned from the first output of
// successful streams, and from nothing else.
func TestOnlyStreamsTeach(t *testing.T) {
	whole := answerOf("application/json")
	event, end := answerBodyMsg("data: 1\n\n", false), answerBodyMsg("", true)
	buffers := modes{modeDuplex, modeBuffered}
	if got := paceAfter(t, duplexModes, answerHeadersMsg("200", false), event, end); got <= 0 {
		t.Errorf("nothing is learned from streams: %v", got)
	}
	for name, got := range map[string]float64{
		"an error":                    paceAfter(t, duplexModes, answerHeadersMsg("400", false), event, end),
		"an error of the worker":      paceAfter(t, duplexModes, answerHeadersMsg("500", false), event, end),
		"no status":                   paceAfter(t, duplexModes, answerHeadersMsg("", false), event, end),
		"a whole response":            paceAfter(t, duplexModes, whole, answerBodyMsg("{}", true)),
		"a whole response, in pieces": paceAfter(t, duplexModes, whole, answerBodyMsg("{", false), answerBodyMsg("}", true)),
		"a stream all at once":        paceAfter(t, duplexModes, answerHeadersMsg("200", false), answerBodyMsg("data: 1\n\n", true)),
		"a buffered stream":           paceAfter(t, buffers, answerHeadersMsg("200", false), event),
	} {
		if got != 0 {
			t.Errorf("%s teaches %v s a token", name, got)
		}
	}
}
