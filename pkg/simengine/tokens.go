package simengine

import (
	"strings"
)

// Ids of the special tokens. Every other token is one byte of UTF-8 text, and
// its id is the byte's value: the tokenizer of the tiny model that the recorded
// captures were made with.
const (
	tokenStart uint32 = 256 // <|im_start|>
	tokenEnd   uint32 = 257 // <|im_end|>, also the end of an answer
	tokenEOT   uint32 = 258 // <|endoftext|>
)

var specials = [...]struct {
	text string
	id   uint32
}{
	{"<|im_start|>", tokenStart},
	{"<|im_end|>", tokenEnd},
	{"<|endoftext|>", tokenEOT},
}

// message is one chat message with its content as text.
type message struct {
	role, content string
}

// appendTokens appends the tokens of text. The spelling of a special token in
// text becomes that token, as the tokenizers of real chat models do.
func appendTokens(dst []uint32, text string) []uint32 {
	for i := 0; i < len(text); {
		if text[i] == '<' {
			if id, n := specialAt(text[i:]); n > 0 {
				dst = append(dst, id)
				i += n
				continue
			}
		}
		dst = append(dst, uint32(text[i]))
		i++
	}
	return dst
}

func specialAt(text string) (id uint32, n int) {
	for _, s := range specials {
		if strings.HasPrefix(text, s.text) {
			return s.id, len(s.text)
		}
	}
	return 0, 0
}

// renderChat returns the text of a conversation under the model's template.
func renderChat(messages []message, addGenerationPrompt bool) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|im_start|>")
		b.WriteString(m.role)
		b.WriteByte('\n')
		b.WriteString(m.content)
		b.WriteString("<|im_end|>\n")
	}
	if addGenerationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String()
}

// tokenText returns the text of a token. Ids outside the vocabulary, which
// prompts given as ids may hold, have none.
func tokenText(id uint32) string {
	if id < 256 {
		return string([]byte{byte(id)})
	}
	for _, s := range specials {
		if s.id == id {
			return s.text
		}
	}
	return ""
}
