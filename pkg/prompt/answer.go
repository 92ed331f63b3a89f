package prompt

// AppendAnswer appends to dst the token ids of an engine's answer, and returns
// the extended slice: the list under key in an object, or in the first object
// of a list, as the render and tokenize endpoints answer (engines.md 6.1). The
// whole answer must be JSON. The error is an [*Error]; dst is then returned as
// it was.
func AppendAnswer(dst []uint32, key string, answer []byte) ([]uint32, error) {
	a := answerReader{scanner: scanner{data: answer}, want: key, dst: dst}
	out, err := a.read()
	if err != nil {
		return dst, err
	}
	return out, nil
}

type answerReader struct {
	scanner
	want string   // the key of the list
	dst  []uint32 // what to append to
	out  []uint32 // dst with the ids
	bad  *Error   // why there are no ids, when the text is sound
}

func (a *answerReader) read() ([]uint32, *Error) {
	a.bad = &Error{CodeInvalidType, a.want, 0, "the answer holds no token ids"}
	var err *Error
	switch a.peek() {
	case '{':
		err = a.object(1)
	case '[':
		err = a.list()
	default:
		err = a.skip(0)
	}
	if err != nil {
		return nil, err
	}
	if a.peek(); a.pos < len(a.data) {
		return nil, a.syntax(a.pos, "invalid JSON: more text after the answer's end")
	}
	return a.out, a.bad
}

// ids reads the value of the list's key.
func (a *answerReader) ids(depth int) *Error {
	a.bad = &Error{CodeInvalidType, a.want, a.pos, "the answer's token ids are no list"}
	if start := a.pos; a.peek() == '[' {
		var ok bool
		if a.out, ok = a.tokenList(a.dst); ok {
			a.bad = nil
			return nil
		}
		a.bad = &Error{CodeInvalidType, a.want, a.pos, msgTokens}
		a.pos = start
	}
	return a.skip(depth)
}

// list reads a list of answers. Only the first counts.
func (a *answerReader) list() *Error {
	empty, err := a.enter(0, ']')
	first := true
	for more := !empty; more && err == nil; first = false {
		if a.peek() == '{' && first {
			err = a.object(2)
		} else {
			err = a.skip(1)
		}
		if err == nil {
			more, err = a.next(']')
		}
	}
	return err
}

// object reads one answer, the depth-th container.
func (a *answerReader) object(depth int) *Error {
	empty, err := a.enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := a.key()
		if keyErr != nil {
			return keyErr
		}
		if a.wanted(name) {
			err = a.ids(depth)
		} else {
			err = a.skip(depth)
		}
		if err == nil {
			more, err = a.next('}')
		}
	}
	return err
}

// wanted reports whether a key is that of the list.
func (a *answerReader) wanted(name span) bool {
	raw := a.data[name.start:name.end]
	if name.escaped {
		raw = appendText(nil, raw)
	}
	return string(raw) == a.want
}
