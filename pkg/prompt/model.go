package prompt

import "github.com/warmpath/warmpath/pkg/prompt/internal/jsonscan"

// ModelText returns the model's name as it stands in data, escapes and all,
// without its quotes. data must be what the last Scan read.
func (b *Body) ModelText(data []byte) []byte { return data[b.nameStart:b.nameEnd] }

// AppendModel appends data to dst with value, which is JSON, in the place of the
// value of the top-level key "model", and returns the extended slice. Nothing else
// changes. A body without the key gets it, before all others. When the key is
// there several times, all its values are replaced: parsers disagree about which
// of them counts. A body that is no object is appended as it is.
//
// data must be what the last Scan read, which must have succeeded.
func (b *Body) AppendModel(dst, data, value []byte) []byte {
	if b.models == 1 {
		dst = append(dst, data[:b.modelStart]...)
		dst = append(dst, value...)
		return append(dst, data[b.modelEnd:]...)
	}
	s := jsonscan.Scanner{Data: data, Known: b.strings}
	if s.Peek() != '{' {
		return append(dst, data...)
	}
	if b.models == 0 {
		return insertModel(dst, &s, value)
	}
	kept := 0 // data was appended up to here
	_, err := s.Enter(0, '}')
	for more := true; more && err == nil; {
		name, keyErr := s.Key()
		if keyErr != nil {
			break // not after a Scan
		}
		s.Peek()
		start := s.Pos
		if err = s.Skip(1); err != nil {
			break
		}
		if isModel(data, name) {
			dst = append(append(dst, data[kept:start]...), value...)
			kept = s.Pos
		}
		more, err = s.Next('}')
	}
	return append(dst, data[kept:]...)
}

// insertModel appends the text of s, which is at the opening brace of an object,
// with the key "model" added.
func insertModel(dst []byte, s *jsonscan.Scanner, value []byte) []byte {
	open := s.Pos + 1
	dst = append(dst, s.Data[:open]...)
	dst = append(dst, `"model":`...)
	dst = append(dst, value...)
	if empty, err := s.Enter(0, '}'); err == nil && !empty {
		dst = append(dst, ',')
	}
	return append(dst, s.Data[open:]...)
}

// isModel says whether the text of a string is the key "model".
func isModel(data []byte, name jsonscan.Span) bool {
	raw := data[name.Start:name.End]
	const longest = len(`\u006d`) * len("model")
	if !name.Escaped || len(raw) > longest {
		return string(raw) == "model"
	}
	var room [longest]byte
	return topLevel(jsonscan.AppendText(room[:0], raw)) == fieldModel
}
