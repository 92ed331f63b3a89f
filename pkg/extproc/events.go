package extproc

// eventReader counts server-sent events that have data, whatever pieces they come
// in. "[DONE]", which ends a stream, is none. A line may end with CR, LF or both; an
// event ends with an empty line.
type eventReader struct {
	at   int8 // bytes of the line that are those of doneLine; otherLine
	cr   bool // the last byte was a CR, which a LF may follow
	data bool // the event has some
}

// doneLine is the line of data that is none, with the space that may be left out.
const (
	doneLine  = "data: [DONE]"
	afterName = int8(len("data:"))
	inData    = int8(len("data: "))
	otherLine = int8(-1) // nothing more in the line matters
)

// count returns how many events end in the next bytes of the stream.
func (e *eventReader) count(chunk []byte) (n int) {
	for i := 0; i < len(chunk); i++ {
		if e.at == otherLine { // most bytes
			if i += lineLength(chunk[i:]); i == len(chunk) {
				return n
			}
		}
		switch c := chunk[i]; {
		case c == '\n' && e.cr:
			e.cr = false
		case c == '\n' || c == '\r':
			e.cr = c == '\r'
			if e.endLine() {
				n++
			}
		default:
			e.cr = false
			e.step(c)
		}
	}
	return n
}

// lineLength is how many bytes come before the end of the line.
func lineLength(b []byte) int {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			return i
		}
	}
	return len(b)
}

// step reads a byte of a line.
func (e *eventReader) step(c byte) {
	if e.at == afterName && c != ' ' {
		e.at = inData
	}
	switch {
	case int(e.at) < len(doneLine) && c == doneLine[e.at]:
		e.at++
	default:
		e.data = e.data || e.at >= inData
		e.at = otherLine
	}
}

// endLine ends a line, and says whether an event with data ends with it.
func (e *eventReader) endLine() (event bool) {
	at := e.at
	e.at = 0
	if at == 0 {
		event, e.data = e.data, false
		return event
	}
	if at > inData && int(at) < len(doneLine) { // a part of it is not the same
		e.data = true
	}
	return false
}
