package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

const (
	turns         = 20
	historyTokens = 20_000
	messageTokens = 500 // of the history
	turnTokens    = 200 // half of the user, half of the model
	bodyBytes     = 128 << 10
	memoBytes     = 64 << 20
	blockTokens   = 16
	bodiesAtOnce  = 32 // different ones
)

// chatMessage is one of a chat request.
type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatBody is a request with these messages.
func chatBody(messages []chatMessage) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{"model": "m", "messages": messages, "stream": true, "max_tokens": 256})
	return b.Bytes(), err
}

// prompts measures whole request bodies: scanned, rendered, tokenized, hashed.
func (s *subject) prompts(context.Context) ([]TokenRow, error) {
	template, err := s.template()
	if err != nil {
		return nil, err
	}
	if template == nil {
		fmt.Fprintf(s.Progress, "%s has no chat template: no prompts\n", s.name)
		return nil, nil
	}
	e, err := encoder.New(encoder.Config{
		Tokenizer: s.model, Template: template, Layout: block.Layout{Size: blockTokens}, MemoBytes: memoBytes, Random: 1,
	})
	if err != nil {
		return nil, err
	}
	p := prompting{subject: s, encoder: e}
	var rows []TokenRow
	for _, measure := range []func() (TokenRow, error){p.conversation, p.cold, p.warm} {
		r, err := measure()
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// prompting measures prompts with one encoder, as long-lived as the picker's.
type prompting struct {
	*subject
	encoder *encoder.Encoder
	body    prompt.Body
	result  encoder.Result
	seed    block.Seed
	seeds   int
}

// forget makes all that the memo knows useless: it belongs to another seed.
func (p *prompting) forget() {
	p.seeds++
	p.seed = block.NewSeed("", strconv.Itoa(p.seeds))
}

// encode is what the picker does with a body.
func (p *prompting) encode(body []byte) error {
	p.body.Decode = true
	if err := p.body.Scan(prompt.Chat, body); err != nil {
		return err
	}
	return p.encoder.Encode(&p.result, prompt.Chat, body, &p.body, p.seed, time.Now())
}

// conversation measures the requests of a conversation, each with all that came
// before.
func (p *prompting) conversation() (TokenRow, error) {
	bodies, err := p.turns()
	if err != nil {
		return TokenRow{}, err
	}
	times := make([]latencies, turns)
	tokens := 0
	for start := time.Now(); len(times[0]) < 5 || time.Since(start) < p.Duration; {
		p.forget()
		if err := p.encode(bodies[0]); err != nil {
			return TokenRow{}, err
		}
		for i, body := range bodies[1:] {
			from := cpuTime()
			if err := p.encode(body); err != nil {
				return TokenRow{}, err
			}
			times[i] = append(times[i], cpuTime()-from)
		}
		tokens = p.result.Tokens
	}
	var each []float64
	for _, t := range times {
		slices.Sort(t)
		each = append(each, us(t[len(t)/2]))
	}
	slices.Sort(each)
	r := TokenRow{Case: "conversation-20-turns", Tokenizer: p.name, Text: "english", Tokens: tokens, Bytes: len(bodies[turns]), MaxUS: each[turns-1]}
	r.speed(each[turns/2])
	return r, nil
}

// turns are the bodies of a conversation: the history, and 20 turns more.
func (p *prompting) turns() ([][]byte, error) {
	source := reader{subject: p.subject, text: p.texts["english"]}
	messages := []chatMessage{{"system", source.take(messageTokens)}}
	for tokens := messageTokens; tokens < historyTokens/p.Shrink; tokens += 2 * messageTokens {
		messages = append(messages, chatMessage{"user", source.take(messageTokens)}, chatMessage{"assistant", source.take(messageTokens)})
	}
	messages[len(messages)-1] = chatMessage{"user", "Go on."}
	messages = append(messages[:len(messages)-2], messages[len(messages)-1])
	bodies := make([][]byte, 0, turns+1)
	for range turns + 1 {
		body, err := chatBody(messages)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
		messages = append(messages, chatMessage{"assistant", source.take(turnTokens / 2)}, chatMessage{"user", source.take(turnTokens / 2)})
	}
	return bodies, nil
}

// cold measures a body that the memo knows nothing of.
func (p *prompting) cold() (TokenRow, error) {
	bodies := make([][]byte, bodiesAtOnce)
	var err error
	for i := range bodies {
		if bodies[i], err = p.large(i); err != nil {
			return TokenRow{}, err
		}
	}
	var all latencies
	for start := time.Now(); len(all) < bodiesAtOnce || time.Since(start) < p.Duration; {
		p.forget()
		for _, body := range bodies {
			from := cpuTime()
			if err := p.encode(body); err != nil {
				return TokenRow{}, err
			}
			all = append(all, cpuTime()-from)
		}
	}
	slices.Sort(all)
	r := TokenRow{Case: "body-128k-cold", Tokenizer: p.name, Text: "english and code", Tokens: p.result.Tokens, Bytes: len(bodies[0])}
	r.speed(us(all[len(all)/2]))
	return r, nil
}

// warm measures a body that the memo knows.
func (p *prompting) warm() (TokenRow, error) {
	body, err := p.large(0)
	if err != nil {
		return TokenRow{}, err
	}
	var failed error
	call, allocs := p.again(func() {
		if err := p.encode(body); err != nil {
			failed = err
		}
	})
	r := TokenRow{Case: "body-128k-warm", Tokenizer: p.name, Text: "english and code", Tokens: p.result.Tokens, Bytes: len(body), Allocs: allocs}
	r.speed(call)
	return r, failed
}

// large is a body of 128 KB: a chat about code. Which one says its first message.
func (p *prompting) large(which int) ([]byte, error) {
	english, code := reader{p.subject, p.texts["english"]}, reader{p.subject, p.texts["code"]}
	messages := []chatMessage{{"system", fmt.Sprintf("This is conversation %d.", which)}}
	for {
		messages = append(messages, chatMessage{"user", english.take(messageTokens) + "\n```go\n" + code.take(2*messageTokens) + "\n```\n"})
		body, err := chatBody(messages)
		if err != nil {
			return nil, err
		}
		if over := len(body) - bodyBytes/p.Shrink; over >= 0 {
			last := &messages[len(messages)-1].Content
			*last = (*last)[:max(0, len(*last)-over)]
			return chatBody(messages)
		}
		messages = append(messages, chatMessage{"assistant", english.take(messageTokens)})
	}
}

// reader takes pieces from a text, one after the other.
type reader struct {
	*subject
	text string
}

// take returns the next piece of about n tokens, which ends with a line.
func (r *reader) take(n int) string {
	at := 0
	for at < len(r.text) && len(r.model.Append(nil, r.text[:at], false)) < n {
		end := strings.IndexByte(r.text[at:], '\n')
		if end < 0 {
			end = len(r.text) - at - 1
		}
		at += end + 1
	}
	piece := r.text[:at]
	r.text = r.text[at:]
	return piece
}

// template compiles the model's chat template; nil when it has none.
func (s *subject) template() (*chat.Template, error) {
	data, err := os.ReadFile(filepath.Join(s.Models, s.name, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	return compileTemplate(data)
}
