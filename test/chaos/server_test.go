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

	cmd    *exec.Cmd
	output *bytes.Buffer
	done   chan struct{} // closed when it has ended
}

// serverOptions are what tests vary.
type serverOptions struct {
	jetStream bool
	// pings makes the server give up a connection within some seconds that does
	// not answer. Otherwise it takes minutes.
	pings bool
}

// startServer runs a server until the test ends.
func startServer(t *testing.T, o serverOptions) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), port: freePort(t), monitor: freePort(t)}
	config := fmt.Sprintf("server_name: chaos\nlisten: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\n", s.port, s.monitor)
	if o.jetStream {
		config += fmt.Sprintf("jetstream { store_dir: %q }\n", filepath.Join(s.dir, "store"))
	}
	if o.pings {
		config += "ping_interval: \"1s\"\nping_max: 2\n"
	}
	if err := os.WriteFile(s.config(), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) config() string { return filepath.Join(s.dir, "nats.conf") }

func (s *server) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

// start runs the process and waits until it takes connections.
func (s *server) start() {
	s.t.Helper()
	s.output, s.done = &bytes.Buffer{}, make(chan struct{})
	s.cmd = exec.Command(natsBinary, "--config", s.config())
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go func() {
		defer close(s.done)
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
		s.t.Fatalf("start nats-server: %v", err)
	}
	up := within(patience, func() bool {
		select {
		case <-s.done:
			return true
		default:
		}
		_, err := s.get("healthz", nil)
		return err == nil
	})
	select {
	case <-s.done:
		s.t.Fatalf("nats-server ended:\n%s", s.output)
	default:
	}
	if !up {
		s.t.Fatal("nats-server did not come up")
	}
}

// kill ends the process as a crash would.
func (s *server) kill() {
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

// serves says whether a client of that name is connected.
func (s *server) serves(name string) bool {
	s.t.Helper()
	var answer struct {
		Connections []struct {
			Name string `json:"name"`
		} `json:"connections"`
	}
	if _, err := s.get("connz", &answer); err != nil {
		s.t.Fatalf("ask nats-server for its connections: %v", err)
	}
	return slices.ContainsFunc(answer.Connections, func(c struct {
		Name string `json:"name"`
	},
	) bool {
		return c.Name == name
	})
}

// get asks the monitoring port.
func (s *server) get(page string, into any) (int, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", s.monitor, page))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode != http.StatusOK:
		return r.StatusCode, fmt.Errorf("/%s answers %s", page, r.Status)
	case into != nil:
		err = json.NewDecoder(r.Body).Decode(into)
	}
	return r.StatusCode, err
}

// freePort is a port of the loopback that nobody listens on. It is below those
// that the kernel gives to clients: none of them may have it while the server is
// down.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
