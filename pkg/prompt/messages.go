package prompt

import "github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"

// messages reads the value of "messages", or a list in "input": a list of
// objects, the value of the field f.
func (r *reader) messages(f field) *jsonscan.Error {
	const depth = 1
	switch r.Data[r.Pos] {
	case '[':
	case 'n':
		return r.Literal("null")
	default:
		return r.wrongValue(f, depth, msgMessages)
	}
	empty, err := r.Enter(depth, ']')
	if empty || err != nil {
		return err
	}
	r.body.Form, r.body.Lists = Messages, 1
	for more := true; more && err == nil; {
		if r.Peek() == '{' {
			err = r.message(depth + 2)
		} else {
			err = r.wrongValue(f, depth+1, msgMessages)
		}
		if err == nil {
			more, err = r.Next(']')
		}
	}
	if r.faults[f].msg != "" {
		r.body.Form, r.body.Lists, r.media = NoPrompt, 0, false
	}
	return err
}

// message reads one message, the depth-th container. Its keys are features; of its
// content only matters whether it is all text.
func (r *reader) message(depth int) *jsonscan.Error {
	media, start := false, r.Pos
	empty, err := r.Enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.Key()
		if keyErr != nil {
			return keyErr
		}
		key := r.decode(name)
		if string(key) == "content" || r.kind == Responses && string(key) == "output" {
			media = false
			if r.Peek() == '[' {
				media, err = r.parts(depth + 1)
			} else {
				err = r.Skip(depth)
			}
		} else {
			r.body.Features |= messageFeature(key)
			err = r.Skip(depth)
		}
		if err == nil {
			more, err = r.Next('}')
		}
	}
	if media && !r.media {
		r.media, r.body.mediaAt = true, start
	}
	return err
}

// parts reads a content that is a list, the depth-th container, and reports
// whether some part is media.
func (r *reader) parts(depth int) (media bool, err *jsonscan.Error) {
	empty, err := r.Enter(depth-1, ']')
	for more := !empty; more && err == nil; {
		if r.Peek() == '{' {
			var found bool
			found, err = r.part(depth + 1)
			media = media || found
		} else {
			err = r.Skip(depth)
		}
		if err == nil {
			more, err = r.Next(']')
		}
	}
	return media, err
}

// maxNested is how deep content parts are looked into. Results of tools need 7.
const maxNested = 16

// part reads one content part, the depth-th container. Its type says what it
// is; a part without one is known by its keys, as vLLM does.
func (r *reader) part(depth int) (media bool, err *jsonscan.Error) {
	typed, byType, byKey, nested := false, false, false, false
	empty, err := r.Enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.Key()
		if keyErr != nil {
			return false, keyErr
		}
		switch key := r.decode(name); {
		case r.kind == AnthropicMessages && string(key) == "content" && r.Peek() == '[' && depth < maxNested:
			var found bool // the result of a tool is a list of parts, too
			found, err = r.parts(depth + 1)
			nested = nested || found
		case string(key) != "type":
			byKey = byKey || isMedia(key)
			err = r.Skip(depth)
		case r.Peek() == '"':
			var kind jsonscan.Span
			kind, err = r.Str()
			typed, byType = true, isMedia(r.decode(kind))
		default:
			typed, byType = false, false
			err = r.Skip(depth)
		}
		if err == nil {
			more, err = r.Next('}')
		}
	}
	if typed {
		byKey = byType
	}
	return byKey || nested, err
}

// isMedia reports whether a content part of this type is more than text. The
// names are those of OpenAI's and Anthropic's APIs and of vLLM.
func isMedia(kind []byte) bool {
	switch string(kind) {
	case "image_url", "input_image", "image", "image_pil", "image_embeds",
		"input_audio", "audio_url", "audio", "audio_embeds",
		"video_url", "input_video", "video", "video_embeds",
		"file", "input_file", "document":
		return true
	default:
		return false
	}
}
