package chaos

import (
	"net"
	"sync"
	"testing"
)

// proxy stands between the server and the plane, so that one can be cut off from
// the other while the workers go on. What it hands on it tells the witness.
type proxy struct {
	target   string
	witness  *witness
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	held     bool // nothing is handed on
	refusing bool // connections are closed at once
	refused  int  // so far
	ended    bool
	links    map[*link]struct{}
}

// link is one connection of the plane.
type link struct{ down, up *net.TCPConn }

// startProxy runs a proxy until the test ends.
func startProxy(t *testing.T, target string, w *witness) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, witness: w, listener: l, links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// hold stops all traffic without closing anything, until resume.
func (p *proxy) hold()   { p.set(func() { p.held = true }) }
func (p *proxy) resume() { p.set(func() { p.held = false }) }

// cut closes all connections, and new ones too until heal.
func (p *proxy) cut() {
	p.set(func() {
		p.refusing = true
		for l := range p.links {
			l.up.Close()
		}
	})
}

func (p *proxy) heal() { p.set(func() { p.refusing = false }) }

// refusals returns how many connections were refused so far.
func (p *proxy) refusals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *proxy) end() {
	p.listener.Close()
	p.set(func() {
		p.ended = true
		for l := range p.links {
			l.up.Close()
			l.down.Close()
		}
	})
	p.running.Wait()
}

// gate waits as long as traffic is held.
func (p *proxy) gate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held && !p.ended {
		p.changed.Wait()
	}
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // the proxy has ended
		}
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

// serve carries one connection.
func (p *proxy) serve(down *net.TCPConn) {
	defer down.Close()
	p.gate()
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the server is down: the plane sees the end of its connection
	}
	defer up.Close()
	l := &link{down: down, up: up.(*net.TCPConn)}
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var back sync.WaitGroup
	back.Go(func() { p.carryBack(l) })
	p.carry(l)
	back.Wait()
}

// add says whether the connection may live.
func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		p.refused++
		return false
	}
	p.links[l] = struct{}{}
	return !p.ended
}

func (p *proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// carry hands on what the server says. What was handed on reaches the plane also
// when the connection is cut: only this direction is closed, after the last byte,
// and the plane closes the other.
func (p *proxy) carry(l *link) {
	w := wire{deliver: p.witness.deliver}
	buf := make([]byte, 64<<10)
	for {
		n, err := l.up.Read(buf)
		p.gate()
		sent, failed := l.down.Write(buf[:n])
		w.feed(buf[:sent])
		if err != nil || failed != nil {
			_ = l.down.CloseWrite() // the plane may have gone first
			return
		}
	}
}

// carryBack hands on what the plane says, to its end: bytes that nobody takes
// would make the kernel drop those that are on their way to the plane.
func (p *proxy) carryBack(l *link) {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.down.Read(buf)
		p.gate()
		_, _ = l.up.Write(buf[:n]) // a cut takes nothing more
		if err != nil {
			_ = l.up.CloseWrite() // the server may have gone first
			return
		}
	}
}
