package extproc

import (
	"context"
	"strings"
	"testing"
)

// lender is a tokenizer that may still read the body when it has answered.
type lender struct{}

func (lender) Tokenize(_ context.Context, p *Prompt) error {
	p.Source, p.Tokens, p.Lent = Engine, 4, true
	return nil
}

// TestLentBodyAfterPanic: a body that somebody may still read is not used again, though
// the decision panicked.
func TestLentBodyAfterPanic(t *testing.T) {
	const secret = "of-the-lent-body"
	l := startRig(t, aggregates(2), func(c *Config) {
		c.Tokenizer = lender{}
		c.Random = func(int) int { panic("a decision panics") }
	})
	e := l.open(t)
	e.send(duplexModes.first(headersMsg("POST", completions, false)))
	e.send(bodyMsg(`{"model":"m",`, false))
	e.send(bodyMsg(`"prompt":"`+secret+`"}`, true))
	if err := e.ended(); err == nil {
		t.Fatal("the decision did not panic")
	}
	for range 64 {
		if room := rooms.Get().(*[]byte); strings.Contains(string((*room)[:cap(*room)]), secret) {
			t.Fatal("the memory of the body went back to the pool")
		}
	}
}
