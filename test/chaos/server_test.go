package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a nats-server process with ports of its own that it has again after
// it was killed.
type server struct {
	t             *testing.T
	dir           string
	port, monitor int

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// serverOptions are what tests vary.
type serverOptions struct {
	jetStream bool
	recovers  bool // the plane can ask the workers what they hold
	streams   bool // the plane reads the events from a stream: with jetStream
	// pings makes the server give up a connection that does not answer within a
	// dozen seconds: a machine may stand still for some. Otherwise it takes minutes.
	pings bool
}

// startServer runs a server until the test ends.
func startServer(t *testing.T, o serverOptions) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir()}
	t.Cleanup(s.kill)
	var err error
	for range 10 { // somebody else may take a port first
		s.port, s.monitor = freePort(t), freePort(t)
		if err = os.WriteFile(s.config(), []byte(s.settings(o)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

func (s *server) settings(o serverOptions) string {
	text := fmt.Sprintf("server_name: chaos\nlisten: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\n", s.port, s.monitor)
	if o.jetStream {
		text += fmt.Sprintf("jetstream { store_dir: %q }\n", filepath.Join(s.dir, "store"))
	}
	if o.pings {
		text += "ping_interval: \"4s\"\nping_max: 2\n"
	}
	return text
}

func (s *server) config() string { return filepath.Join(s.dir, "nats.conf") }

func (s *server) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

// start runs the process again, on the same ports.
func (s *server) start() {
	s.t.Helper()
	var err error
	if !within(patience, func() bool { err = s.launch(); return err == nil }) {
		s.t.Fatal(err)
	}
}

// launch runs the process and waits until it takes connections.
func (s *server) launch() error {
	output, done := &bytes.Buffer{}, make(chan struct{})
	s.cmd, s.done = exec.Command(natsBinary, "--config", s.config()), done
	s.cmd.Stdout, s.cmd.Stderr = output, output
	s.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go func() {
		defer close(done)
		// The parent-death signal is sent when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start nats-server: %w", err)
	}
	ended := false
	up := within(patience, func() bool {
		select {
		case <-done:
			ended = true
		default:
		}
		return ended || s.get("healthz", nil) == nil
	})
	switch {
	case ended:
		return fmt.Errorf("nats-server ended:\n%s", output)
	case !up:
		s.kill()
		return fmt.Errorf("nats-server did not come up:\n%s", output)
	}
	return nil
}

// kill ends the process as a crash would.
func (s *server) kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return // it never started
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL) // it has ended when this fails
	<-s.done
}

// freeze stops the process without ending it, until thaw.
func (s *server) freeze() { s.signal(syscall.SIGSTOP) }
func (s *server) thaw()   { s.signal(syscall.SIGCONT) }

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal %s to nats-server: %v", sig, err)
	}
}

// serves says whether a client of that name is connected, as far as the server says.
func (s *server) serves(name string) bool {
	type connection struct{ Name string }
	var answer struct{ Connections []connection }
	err := s.get("connz", &answer)
	return err != nil || slices.Contains(answer.Connections, connection{name})
}

// get asks the monitoring port.
func (s *server) get(page string, into any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", s.monitor, page))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode != http.StatusOK:
		return fmt.Errorf("/%s answers %s", page, r.Status)
	case into == nil:
		return nil
	}
	return json.NewDecoder(r.Body).Decode(into)
}

// ports are those that servers of this process have, or had.
var ports struct {
	mu   sync.Mutex
	last int
}

// freePort is a port of the loopback that nobody listens on, each time another one: the
// servers of other tests may be down. It is below those that the kernel gives to
// clients: none of them may have it while the server is down.
func freePort(t *testing.T) int {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.last == 0 {
		ports.last = rand.IntN(12000)
	}
	for range 12000 {
		ports.last++
		port := 20000 + ports.last%12000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
