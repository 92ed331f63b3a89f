package encoder_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// words are common ones, and what chats with code hold besides.
var words = strings.Fields(`the of and to in a is that for it as was with be by on not he his but at are this have
from or had an they which one you were all her she there would their we him been has when who will no more if out so
request cache prefix worker token router engine block prompt decision latency throughput memory pipeline index hash
temperature observatory telescope spectrum calibration exposure baseline instrument residual gradient iteration
Consider However Therefore Otherwise Nevertheless implementation configuration asynchronous deployment 3.14 2026 42
func return nil err := != == "quoted" 'single' {} [] () => -> // /* */ café naïve 東京 数据 🙂 Straße`)

// prose returns about n bytes of text: sentences, paragraphs, bits of code.
func prose(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		switch r.IntN(12) {
		case 0:
			b.WriteString(".\n\n")
		case 1:
			b.WriteString("\n\tif err := load(\"config.yaml\", &cfg); err != nil {\n\t\treturn fmt.Errorf(\"load: %w\", err)\n\t}\n")
		case 2:
			b.WriteString(", ")
		default:
			for range 1 + r.IntN(12) {
				b.WriteString(words[r.IntN(len(words))])
				b.WriteByte(' ')
			}
		}
	}
	return b.String()
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// conversation is a chat that grows by a question and an answer a turn.
type conversation struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Stream   bool          `json:"stream"`

	random *rand.Rand
}

// newConversation starts with about n bytes in messages of about size bytes.
func newConversation(n, size int, seed uint64) *conversation {
	c := &conversation{Model: "qwen3", Stream: true, random: rand.New(rand.NewPCG(1, seed))}
	c.say("system", min(size, 800))
	for have := 0; have < n; have += size {
		if len(c.Messages)%2 == 1 {
			c.say("user", size)
		} else {
			c.say("assistant", size)
		}
	}
	if len(c.Messages)%2 == 1 {
		c.say("user", size)
	}
	return c
}

func (c *conversation) say(role string, n int) {
	c.Messages = append(c.Messages, chatMessage{role, prose(c.random, n)})
}

// turn adds an answer and a question of about n bytes in all.
func (c *conversation) turn(n int) {
	c.say("assistant", n/2)
	c.say("user", n/2)
}

func (c *conversation) body(tb testing.TB) []byte {
	tb.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
