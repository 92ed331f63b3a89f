package jinja

import (
	"strings"
	"time"
)

// strftimeFormats are Python's formats of the C locale, by their letter, as
// layouts of Go.
var strftimeFormats = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006", 'j': "002",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

func strftimeNow(m *machine, a *args) (Value, *Error) {
	v, err := one(a)
	switch {
	case err != nil:
		return Undefined, err
	case v.kind != KindString:
		return Undefined, raised("strftime_now of something that is no text")
	}
	// The longest format is that of the date and time: 24 bytes for two.
	if err := m.charge(12 * len(v.str())); err != nil {
		return Undefined, err
	}
	text, err := strftime(m.env.Now, v.str())
	return String(text), err
}

func strftime(now time.Time, format string) (string, *Error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		trim := false
		if i++; i < len(format) && format[i] == '-' { // glibc: no padding
			trim = true
			i++
		}
		if i == len(format) {
			return "", refused("strftime_now with a format that has no end")
		}
		layout, ok := strftimeFormats[format[i]]
		switch {
		case format[i] == '%' && !trim:
			b.WriteByte('%')
		case !ok || trim && !strings.ContainsRune("demyHIMSj", rune(format[i])):
			return "", refused("strftime_now with an unusual format")
		default:
			text := now.Format(layout)
			if trim {
				if text = strings.TrimLeft(text, "0 "); text == "" {
					text = "0"
				}
			}
			b.WriteString(text)
		}
	}
	return b.String(), nil
}
