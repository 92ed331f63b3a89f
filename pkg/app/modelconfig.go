package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
)

// tokenizerConfig is what of a tokenizer_config.json is about templates.
type tokenizerConfig struct {
	tokens   map[string]string // strings for the template, by name: bos_token and the like
	template string

	noTemplate error // why there is a template and none that can be used
}

// readConfig reads a tokenizer_config.json. Nil data is an empty one.
func readConfig(data []byte) (c tokenizerConfig, err error) {
	c.tokens = map[string]string{}
	if data == nil {
		return c, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil { // checked by whoever got it: this is the shape
		return c, errors.New("tokenizer_config.json: is not an object")
	}
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") || strings.HasPrefix(name, "add_") {
			continue
		}
		if text, ok := tokenText(raw); ok {
			c.tokens[name] = text
		}
	}
	var split bool
	if raw := fields["split_special_tokens"]; raw != nil && json.Unmarshal(raw, &split) == nil && split {
		return c, errors.New("tokenizer_config.json: split_special_tokens is not supported")
	}
	if raw := fields["chat_template"]; raw != nil {
		c.template, c.noTemplate = templateText(raw)
	}
	return c, nil
}

// tokenText returns the text of a token, which is written as a string or as an
// object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text == nil {
			return "", false // null
		}
		return *text, true
	}
	var token struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(raw, &token) != nil || token.Content == nil {
		return "", false
	}
	return *token.Content, true
}

// templateText returns a chat template: the one there is, or of several the one
// called default.
func templateText(raw json.RawMessage) (string, error) {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text == nil {
			return "", nil // null
		}
		return *text, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(raw, &list) == nil {
		for _, one := range list {
			if one.Name == "default" {
				if len(list) > 1 {
					return "", unsupportedTemplate("several chat templates are not supported: the engine chooses one by what is in the request; set chatTemplate.file")
				}
				return one.Template, nil
			}
		}
	}
	return "", unsupportedTemplate("chat_template is no text")
}

func unsupportedTemplate(msg string) error {
	return &chat.Error{Code: chat.CodeTemplate, Msg: "tokenizer_config.json: " + msg}
}

// templateOf returns the chat template of a model: the file that takes its place,
// else the model's own, "" where it has none.
func templateOf(f *modelfiles.Files, c *tokenizerConfig, file string) (string, error) {
	if file != "" {
		const most = 4 << 20
		data, err := readBounded(file, most)
		if err != nil {
			return "", fmt.Errorf("chatTemplate.file: %w", err)
		}
		return string(data), nil
	}
	if f.Template != nil {
		return f.TemplateSource()
	}
	return c.template, nil
}
