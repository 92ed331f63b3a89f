package bench

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/chat"
)

// compileTemplate compiles the chat template of a tokenizer_config.json; nil when
// it has none.
func compileTemplate(config []byte) (*chat.Template, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, err
	}
	var source string
	if raw, ok := fields["chat_template"]; !ok {
		return nil, nil //nolint:nilnil // none is no error
	} else if err := json.Unmarshal(raw, &source); err != nil {
		return nil, fmt.Errorf("chat_template: %w", err)
	}
	tokens := map[string]string{}
	for name, raw := range fields {
		if text, ok := tokenText(raw); ok && strings.HasSuffix(name, "_token") {
			tokens[name] = text
		}
	}
	return chat.Compile(source, chat.Options{Tokens: tokens})
}

// tokenText is the text of a special token, which is a string or an object with
// its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}
