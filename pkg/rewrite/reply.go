package rewrite

// Reply sets the model's name in one response to that of the request. It passes
// bytes on as they come and keeps none back: what is not a name stays as it is,
// JSON that is broken too.
//
// A name is the string under the key "model" of the response's object or, if there
// are server-sent events, of the object in each; and of the object under one more
// key, since some APIs put the whole response into an event. All such names are
// set, whatever they were: an engine may answer by another of its own names.
type Reply struct {
	name   []byte
	events bool
	line   lineReader
	value  valueReader
	out    []byte
}

// Keys under which an event holds the response it is about.
const (
	InMessage  = "message"  // Anthropic's message_start
	InResponse = "response" // OpenAI's response.created and the like
)

// NewReply returns one for a response. name is the text of the name as JSON,
// without quotes. inner is the further key, empty for none. events says that the
// response is a stream of server-sent events.
func NewReply(name []byte, inner string, events bool) *Reply {
	return &Reply{name: name, events: events, value: valueReader{inner: inner}}
}

// Next takes the next bytes of the response and returns what to send in their
// place: the same slice when nothing changes, else one that is valid until the next
// call. It may be empty.
func (r *Reply) Next(chunk []byte) []byte {
	r.out = r.out[:0]
	from, changed := 0, r.value.at == inName
	for i := 0; i < len(chunk); i++ {
		if i += r.uneventful(chunk[i:]); i == len(chunk) {
			break
		}
		dropped := r.value.at == inName
		r.step(chunk[i])
		switch dropping := r.value.at == inName; {
		case dropping && !dropped:
			r.out = append(append(r.out, chunk[from:i+1]...), r.name...)
			changed = true
		case dropped && !dropping:
			from = i // at the closing quote, or where the line ends too early
		}
	}
	switch {
	case !changed:
		return chunk
	case r.value.at != inName:
		r.out = append(r.out, chunk[from:]...)
	}
	return r.out
}

// Bytes that step must see, by where they are.
const (
	inStrings = 1 << iota
	inLists
	inLines
)

var stops = [256]uint8{
	'"': inStrings | inLists, '\\': inStrings,
	'{': inLists, '}': inLists, '[': inLists, ']': inLists,
	'\n': inStrings | inLists | inLines, '\r': inStrings | inLists | inLines,
}

// uneventful returns how many bytes at the start of chunk step need not see. Most
// of a response are such: they are passed over several times as fast.
func (r *Reply) uneventful(chunk []byte) int {
	var stop uint8
	switch at := r.value.at; {
	case r.events && r.line.seen == other, r.events && r.line.seen == len(dataField) && at == deaf:
		stop = inLines
	case r.events && r.line.seen != len(dataField):
		return 0
	case at == deaf:
		return len(chunk)
	case (at == inString || at == inName || at == inText) && !r.value.escaped:
		stop = inStrings
	case at == inOther:
		stop = inLists
	default:
		return 0
	}
	for i, c := range chunk {
		if stops[c]&stop != 0 {
			return i
		}
	}
	return len(chunk)
}

func (r *Reply) step(c byte) {
	if !r.events {
		r.value.step(c)
		return
	}
	switch r.line.step(c) {
	case dataByte:
		r.value.step(c)
	case dataEnd:
		r.value.lineEnd()
	case eventEnd:
		r.value.reset()
	case otherByte:
	}
}

// lineReader tells what the bytes of server-sent events are. A line may end with
// CR, LF or both; the data of an event may lie on several lines.
type lineReader struct {
	seen  int  // bytes of the line that are those of dataField; other for another line
	ended bool // the last byte was a CR, which a LF may follow
}

const dataField = "data:"

const other = -1

// lineByte is what a byte of an event stream is.
type lineByte uint8

const (
	otherByte lineByte = iota
	dataByte           // of the data of an event
	dataEnd            // ends a line of data
	eventEnd           // ends an event
)

func (l *lineReader) step(c byte) lineByte {
	if c == '\n' && l.ended {
		l.ended = false
		return otherByte
	}
	l.ended = c == '\r'
	switch {
	case c == '\n' || c == '\r':
		seen := l.seen
		l.seen = 0
		if seen == 0 {
			return eventEnd
		}
		if seen == len(dataField) {
			return dataEnd
		}
	case l.seen == len(dataField):
		return dataByte
	case l.seen >= 0 && c == dataField[l.seen]:
		l.seen++
	default:
		l.seen = other
	}
	return otherByte
}
