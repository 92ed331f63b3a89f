package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for something that takes milliseconds to a
// few seconds on an idle machine.
const patience = 60 * time.Second

// raceExit is the status with which a part ends when the race detector found
// something.
const raceExit = 66

// raceOptions end a part at its first data race. Without atexit_sleep_ms every
// part takes a second to end.
const raceOptions = "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=50"

// process is a part of the system that runs as a process of its own.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	done   chan struct{} // closed when it has ended
}

// start runs a command until the test ends. Unless the test ends it, it must end
// well on SIGTERM.
func start(t *testing.T, name string, env []string, command ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), raceOptions), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.WaitDelay = 5 * time.Second
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		// The parent-death signal is sent when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		if p.running() {
			p.end(t, syscall.SIGTERM)
		}
		p.checkRaces(t)
		if t.Failed() {
			t.Logf("end of what %s wrote:\n%s", name, tail(p.stderr.String()))
		}
	})
	return p
}

// end asks the process to end and waits for it. It must end with status 0.
func (p *process) end(t *testing.T, s os.Signal) {
	t.Helper()
	p.signal(t, s)
	p.wait(t)
}

// wait waits until the process has ended, with status 0. It kills one that does
// not.
func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s has not ended after %s", p.name, patience)
		p.kill()
	}
	if !p.cmd.ProcessState.Success() {
		t.Errorf("%s ended with %s", p.name, p.cmd.ProcessState)
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal %s to %s: %v", s, p.name, err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it has ended when this fails
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// checkRaces fails the test when the race detector found something.
func (p *process) checkRaces(t *testing.T) {
	t.Helper()
	out := p.stderr.String()
	if i := strings.Index(out, "WARNING: DATA RACE"); i >= 0 {
		t.Errorf("data race in %s:\n%s", p.name, out[i:])
	} else if p.cmd.ProcessState.ExitCode() == raceExit { // its report was lost
		t.Errorf("the race detector ended %s", p.name)
	}
}

// record is one line of a part's JSON log.
type record map[string]any

func (r record) text(key string) string {
	s, _ := r[key].(string)
	return s
}

// logged returns the lines of the log that have the message.
func (p *process) logged(msg string) []record {
	var list []record
	for line := range strings.Lines(p.stderr.String()) {
		var r record
		if json.Unmarshal([]byte(line), &r) == nil && r.text("msg") == msg {
			list = append(list, r)
		}
	}
	return list
}

// awaitLog waits until the log has the message and returns its first line.
func (p *process) awaitLog(t *testing.T, msg string) record {
	t.Helper()
	var list []record
	eventually(t, p.name+" logs "+msg, func() bool {
		ended := !p.running() // looked at first: what it said last is in the log then
		if list = p.logged(msg); len(list) == 0 && ended {
			t.Fatalf("%s ended before it logged %q:\n%s", p.name, msg, tail(p.stderr.String()))
		}
		return len(list) > 0
	})
	return list[0]
}

// wantLogged waits until the log has a message n times, and wants it no more often. A
// process that has answered may have said so before, and the test not have read it.
func (p *process) wantLogged(t *testing.T, n int, msg string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s logs %d times: %s", p.name, n, msg), func() bool { return len(p.logged(msg)) >= n })
	if got := len(p.logged(msg)); got != n {
		t.Errorf("%s logged %d times, want %d: %s", p.name, got, n, msg)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// await waits for a channel.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited %s in vain until: %s", patience, what)
	}
}

func tail(s string) string { return s[max(0, len(s)-4096):] }

// lockedBuffer is a buffer that is read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
