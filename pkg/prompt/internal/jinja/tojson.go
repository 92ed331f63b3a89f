package jinja

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonWriter is Python's json.dumps.
type jsonWriter struct {
	m         *machine
	out       []byte
	item, key string // separators
	indent    string // of one level
	pretty    bool   // a line for each element
	ascii     bool
	sort      bool
}

// toJSON is the filter tojson of transformers: json.dumps with
// ensure_ascii=False unless asked otherwise.
func toJSON(m *machine, v Value, a *args) (Value, *Error) {
	w := jsonWriter{m: m, item: ", ", key: ": "}
	if len(a.pos)+len(a.kw) > 0 {
		if err := w.options(a); err != nil {
			return Undefined, err
		}
	}
	start := len(m.out)
	w.out = m.out
	err := w.value(v, 0)
	m.out = w.out
	if err != nil {
		return Undefined, err
	}
	if len(m.out)-m.base > m.env.Limits.Output {
		return Undefined, &Error{Code: LimitOutput, Msg: "its text is too long"}
	}
	return m.capture(start)
}

func (w *jsonWriter) options(a *args) *Error {
	b, err := a.bind("ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return err
	}
	w.ascii, w.sort = b.vals[0].truthy(), b.vals[3].truthy()
	if v := b.vals[1]; b.set[1] && v.kind != KindNone {
		w.pretty, w.item = true, ","
		switch {
		case v.kind == KindString:
			w.indent = v.str()
		case v.intLike() && v.int() <= 64:
			w.indent = strings.Repeat(" ", int(max(0, v.int())))
		default:
			return raised("tojson with an indent that is no small number")
		}
	}
	if v := b.vals[2]; b.set[2] && v.kind != KindNone {
		l := v.List()
		if l == nil || len(l.Items) != 2 || l.Items[0].kind != KindString || l.Items[1].kind != KindString {
			return raised("tojson with separators that are not two texts")
		}
		w.item, w.key = l.Items[0].str(), l.Items[1].str()
	}
	return nil
}

func (w *jsonWriter) value(v Value, depth int) *Error {
	if err := w.m.step(); err != nil {
		return err
	}
	if depth > maxNesting {
		return tooDeep()
	}
	if len(w.out)-w.m.base > w.m.env.Limits.Output {
		return &Error{Code: LimitOutput, Msg: "its text is too long"}
	}
	switch v.kind {
	case KindNone:
		w.out = append(w.out, "null"...)
	case KindBool:
		w.out = strconv.AppendBool(w.out, v.truthy())
	case KindInt:
		w.out = strconv.AppendInt(w.out, v.int(), 10)
	case KindBig:
		w.out = append(w.out, v.str()...)
	case KindFloat:
		w.out = appendFloat(w.out, v.float(), "Infinity", "NaN")
	case KindString:
		return w.text(v.str())
	case KindList:
		return w.list(v.list(), depth)
	case KindDict:
		return w.dict(v.dict(), depth)
	default:
		return raised("tojson of something that JSON does not know")
	}
	return nil
}

// line starts a new line, when there are lines.
func (w *jsonWriter) line(depth int) *Error {
	if !w.pretty {
		return nil
	}
	if err := w.m.work(depth * len(w.indent)); err != nil {
		return err
	}
	w.out = append(w.out, '\n')
	for range depth {
		w.out = append(w.out, w.indent...)
	}
	return nil
}

func (w *jsonWriter) list(l *List, depth int) *Error {
	if l.shape > shapeTuple {
		return raised("tojson of a generator, a range or the keys of a dict")
	}
	w.out = append(w.out, '[')
	for i, item := range l.Items {
		if i > 0 {
			w.out = append(w.out, w.item...)
		}
		if err := w.line(depth + 1); err != nil {
			return err
		}
		if err := w.value(item, depth+1); err != nil {
			return err
		}
	}
	return w.end(']', len(l.Items), depth)
}

// end closes a container of n elements.
func (w *jsonWriter) end(c byte, n, depth int) *Error {
	if n > 0 {
		if err := w.line(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, c)
	return nil
}

func (w *jsonWriter) dict(d *Dict, depth int) *Error {
	entries := d.entries
	if w.sort {
		for _, e := range entries {
			if e.Key.kind != KindString {
				return refused("tojson sorts keys that are no texts")
			}
		}
		entries = slices.Clone(entries)
		slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key.str(), b.Key.str()) })
	}
	w.out = append(w.out, '{')
	for i, e := range entries {
		if i > 0 {
			w.out = append(w.out, w.item...)
		}
		if err := w.line(depth + 1); err != nil {
			return err
		}
		if err := w.name(e.Key); err != nil {
			return err
		}
		w.out = append(w.out, w.key...)
		if err := w.value(e.Val, depth+1); err != nil {
			return err
		}
	}
	return w.end('}', len(entries), depth)
}

// name writes a key. JSON's keys are texts.
func (w *jsonWriter) name(key Value) *Error {
	switch key.kind {
	case KindString:
		return w.text(key.str())
	case KindNone, KindBool, KindInt, KindBig, KindFloat:
		w.out = append(w.out, '"')
		if err := w.value(key, 0); err != nil {
			return err
		}
		w.out = append(w.out, '"')
		return nil
	default:
	}
	return raised("tojson of a key that JSON does not know")
}

// text writes a text with the escapes of json.dumps.
func (w *jsonWriter) text(s string) *Error {
	if err := w.m.work(len(s)); err != nil {
		return err
	}
	w.out = append(w.out, '"')
	out := w.out
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !w.ascii) {
			i++
			continue
		}
		out = append(out, s[start:i]...)
		n := 1
		if c >= utf8.RuneSelf {
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			out = appendUnicode(out, r)
		} else {
			out = appendEscape(out, c)
		}
		i += n
		start = i
	}
	w.out = append(append(out, s[start:]...), '"')
	return nil
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendUnicode appends a character in ASCII, as surrogates when it needs two.
func appendUnicode(dst []byte, r rune) []byte {
	if r >= 0x10000 {
		r -= 0x10000
		dst = appendUnicode(dst, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
