package prompt

import "github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"

// AppendAnswer appends to dst the token ids of an engine's answer, and returns
// the extended slice: the list under key in an object, or in the first object
// of a list, as the render and tokenize endpoints answer (engines.md 6.1). The
// whole answer must be JSON. The error is an [*Error]; dst is then returned as
// it was.
func AppendAnswer(dst []uint32, key string, answer []byte) ([]uint32, error) {
	a := answerReader{Scanner: jsonscan.Scanner{Data: answer}, want: key, dst: dst}
	out, err := a.read()
	if err != nil {
		return dst, err
	}
	return out, nil
}

type answerReader struct {
	jsonscan.Scanner
	want string   // the key of the list
	dst  []uint32 // what to append to
	out  []uint32 // dst with the ids
	bad  *Error   // why there are no ids, when the text is sound
}

func (a *answerReader) read() ([]uint32, *Error) {
	a.bad = &Error{CodeInvalidType, a.want, 0, "the answer holds no token ids"}
	var err *jsonscan.Error
	switch a.Peek() {
	case '{':
		err = a.object(1)
	case '[':
		err = a.list()
	default:
		err = a.Skip(0)
	}
	if err != nil {
		return nil, invalid(err)
	}
	if a.Peek(); a.Pos < len(a.Data) {
		return nil, invalid(a.Syntax(a.Pos, "invalid JSON: more text after the answer's end"))
	}
	return a.out, a.bad
}

// ids reads the value of the list's key.
func (a *answerReader) ids(depth int) *jsonscan.Error {
	a.bad = &Error{CodeInvalidType, a.want, a.Pos, "the answer's token ids are no list"}
	if start := a.Pos; a.Peek() == '[' {
		var ok bool
		if a.out, ok = tokenList(&a.Scanner, a.dst); ok {
			a.bad = nil
			return nil
		}
		a.bad = &Error{CodeInvalidType, a.want, a.Pos, msgTokens}
		a.Pos = start
	}
	return a.Skip(depth)
}

// list reads a list of answers. Only the first counts.
func (a *answerReader) list() *jsonscan.Error {
	empty, err := a.Enter(0, ']')
	first := true
	for more := !empty; more && err == nil; first = false {
		if a.Peek() == '{' && first {
			err = a.object(2)
		} else {
			err = a.Skip(1)
		}
		if err == nil {
			more, err = a.Next(']')
		}
	}
	return err
}

// object reads one answer, the depth-th container.
func (a *answerReader) object(depth int) *jsonscan.Error {
	empty, err := a.Enter(depth-1, '}')
	for more := !empty; more && err == nil; {
		name, keyErr := a.Key()
		if keyErr != nil {
			return keyErr
		}
		if a.wanted(name) {
			err = a.ids(depth)
		} else {
			err = a.Skip(depth)
		}
		if err == nil {
			more, err = a.Next('}')
		}
	}
	return err
}

// wanted reports whether a key is that of the list.
func (a *answerReader) wanted(name jsonscan.Span) bool {
	raw := a.Data[name.Start:name.End]
	if name.Escaped {
		raw = jsonscan.AppendText(nil, raw)
	}
	return string(raw) == a.want
}
