package chaos

import (
	"bytes"
	"strconv"
	"sync"
)

// witness knows what the transport delivered: it is told of every byte that went
// from the server to the plane, and picks the workers' messages out of it.
type witness struct {
	mu       sync.Mutex
	expected map[string]*message // by body: no two are equal
	seen     uint64              // of those
	again    uint64              // that had been seen
	others   uint64              // messages that no worker sent
}

func newWitness() *witness { return &witness{expected: map[string]*message{}} }

// expect names a message before it is published.
func (w *witness) expect(body []byte, m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[string(body)] = m
}

// count returns how many messages of workers went through.
func (w *witness) count() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// sees says whether a message went through.
func (w *witness) sees(m *message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.delivered
}

// forget ends the wait for all that was published so far.
func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.expected)
}

// deliver notes a message that has gone through as a whole.
func (w *witness) deliver(body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.expected[string(body)]
	if m == nil {
		w.others++
		return
	}
	if m.delivered {
		w.again++
		return
	}
	w.seen++
	m.delivered = true
}

// wire reads one connection of NATS's protocol, from the server's side.
type wire struct {
	deliver func(body []byte)
	rest    []byte // start of a frame that is not whole yet
}

// feed takes the next bytes.
func (p *wire) feed(data []byte) {
	p.rest = append(p.rest, data...)
	for {
		n, body, isMessage := frame(p.rest)
		if n == 0 {
			return
		}
		if isMessage {
			p.deliver(body)
		}
		p.rest = p.rest[n:]
	}
}

// frame returns the length of the frame that b starts with, 0 when it is not
// whole, and the body of a message.
func frame(b []byte) (n int, body []byte, isMessage bool) {
	line, after, whole := bytes.Cut(b, []byte("\r\n"))
	if !whole {
		return 0, nil, false
	}
	// MSG subject sid [reply] size; HMSG subject sid [reply] headers size, where
	// size counts the headers too.
	fields := bytes.Fields(line)
	head := 0
	switch {
	case len(fields) >= 5 && string(fields[0]) == "HMSG":
		head = number(fields[len(fields)-2])
	case len(fields) >= 4 && string(fields[0]) == "MSG":
	default:
		return len(line) + 2, nil, false
	}
	size := number(fields[len(fields)-1])
	if len(after) < size+2 {
		return 0, nil, false
	}
	return len(line) + 2 + size + 2, after[head:size], true
}

// number reads what the server wrote as a number.
func number(text []byte) int {
	n, err := strconv.Atoi(string(text))
	if err != nil {
		panic("chaos: not NATS's protocol: " + err.Error())
	}
	return n
}
