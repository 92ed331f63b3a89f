package modelfiles

import (
	"encoding/json"
	"strings"
)

// TemplateSource returns the Jinja source in Template, empty when there is none.
// chat_template.json is an object with the source as "chat_template", or with
// several by name there, of which "default" is meant.
func (f *Files) TemplateSource() (string, error) {
	if !strings.HasSuffix(f.TemplateName, ".json") {
		return string(f.Template), nil
	}
	wrong := &Error{
		Code: BadContent, File: f.TemplateName, Source: f.Source,
		Msg: `holds no "chat_template" that is a text, or that has one by the name "default"`,
		Fix: "use " + nameTemplate + " instead",
	}
	var object struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if json.Unmarshal(f.Template, &object) != nil {
		return "", wrong
	}
	var text *string
	if json.Unmarshal(object.Template, &text) == nil && text != nil {
		return *text, nil
	}
	var byName map[string]string
	if json.Unmarshal(object.Template, &byName) == nil && byName != nil {
		if source, ok := byName["default"]; ok {
			return source, nil
		}
		return "", wrong
	}
	var list []struct {
		Name     string  `json:"name"`
		Template *string `json:"template"`
	}
	if json.Unmarshal(object.Template, &list) == nil {
		for _, one := range list {
			if one.Name == "default" && one.Template != nil {
				return *one.Template, nil
			}
		}
	}
	return "", wrong
}
