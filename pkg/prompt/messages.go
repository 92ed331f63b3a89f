package prompt

// messages reads the value of "messages": a list of objects.
func (r *reader) messages() *Error {
	const depth = 1
	switch r.data[r.pos] {
	case '[':
	case 'n':
		return r.literal("null")
	default:
		return r.wrongValue(fieldMessages, depth, msgMessages)
	}
	empty, err := r.enter(depth, ']')
	if empty || err != nil {
		return err
	}
	r.body.Form, r.body.Lists = Messages, 1
	for more := true; more && err == nil; {
		if r.peek() == '{' {
			err = r.message(depth + 2)
		} else {
			err = r.wrongValue(fieldMessages, depth+1, msgMessages)
		}
		if err == nil {
			more, err = r.next(']')
		}
	}
	return err
}

// message reads one message, the depth-th container. Its keys are features; of its
// content only matters whether it is all text.
func (r *reader) message(depth int) *Error {
	media := false
	empty, err := r.enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.key()
		if keyErr != nil {
			return keyErr
		}
		key := r.decode(name)
		if string(key) == "content" {
			media = false
			if r.peek() == '[' {
				media, err = r.parts(depth + 1)
			} else {
				err = r.skip(depth)
			}
		} else {
			r.body.Features |= messageFeature(key)
			err = r.skip(depth)
		}
		if err == nil {
			more, err = r.next('}')
		}
	}
	r.media = r.media || media
	return err
}

// parts reads a content that is a list, the depth-th container, and reports
// whether some part is media.
func (r *reader) parts(depth int) (media bool, err *Error) {
	empty, err := r.enter(depth-1, ']')
	for more := !empty; more && err == nil; {
		if r.peek() == '{' {
			var found bool
			found, err = r.part(depth + 1)
			media = media || found
		} else {
			err = r.skip(depth)
		}
		if err == nil {
			more, err = r.next(']')
		}
	}
	return media, err
}

// part reads one content part, the depth-th container. Its type says what it
// is; a part without one is known by its keys, as vLLM does.
func (r *reader) part(depth int) (media bool, err *Error) {
	typed, byType, byKey := false, false, false
	empty, err := r.enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := r.key()
		if keyErr != nil {
			return false, keyErr
		}
		switch key := r.decode(name); {
		case string(key) != "type":
			byKey = byKey || isMedia(key)
			err = r.skip(depth)
		case r.peek() == '"':
			var kind span
			kind, err = r.str()
			typed, byType = true, isMedia(r.decode(kind))
		default:
			typed, byType = false, false
			err = r.skip(depth)
		}
		if err == nil {
			more, err = r.next('}')
		}
	}
	if typed {
		return byType, err
	}
	return byKey, err
}

// isMedia reports whether a content part of this type is more than text. The
// names are those of OpenAI's API and of vLLM.
func isMedia(kind []byte) bool {
	switch string(kind) {
	case "image_url", "input_image", "image", "image_pil", "image_embeds",
		"input_audio", "audio_url", "audio", "audio_embeds",
		"video_url", "input_video", "video", "video_embeds",
		"file", "input_file":
		return true
	default:
		return false
	}
}
