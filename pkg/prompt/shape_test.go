package prompt

import (
	"strings"
	"testing"
)

func TestFeatures(t *testing.T) {
	for body, want := range map[string]Features{
		`{"model":"m","messages":[{"role":"user","content":"tools reasoning echo"}],"stream":true}`:                    0,
		`{"model":"m","tools":[],"messages":[{"role":"user","content":"a"}]}`:                                          HasTools,
		`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[]}]}`:                               HasTools,
		`{"model":"m","messages":[{"role":"tool","tool_call_id":"1","content":"a"}]}`:                                  HasTools,
		`{"model":"m","messages":[{"role":"assistant","reasoning_content":"b","content":"a"}]}`:                        HasReasoning,
		`{"model":"m","messages":[{"role":"a","\u0072easoning":"b","content":[]}]}`:                                    HasReasoning,
		`{"model":"m","messages":[{"role":"a"}],"chat_template_kwargs":{"tools":1}}`:                                   HasOptions,
		`{"model":"m","messages":[{"role":"a","tools":1}],"nvext":{"tools":1},"metadata":{"tools":[{"reasoning":1}]}}`: 0,
		`{"documents":[],"model":"m","messages":[{"thinking":"x"}],"functions":[]}`:                                    HasOptions | HasTools | HasReasoning,
		`{"model":"m","prompt":"a","add_special_tokens":false}`:                                                        HasOptions | HasSpecial,
	} {
		kind := Chat
		if strings.Contains(body, `"prompt"`) {
			kind = Completion
		}
		var b Body
		b.Features = HasTools // of the request before
		if err := b.Scan(kind, []byte(body)); err != nil || b.Features != want {
			t.Errorf("%s: %03b, %v, want %03b", body, b.Features, err, want)
		}
	}
}
