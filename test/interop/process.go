package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// killAfter is how long a part may take to end on SIGTERM.
const killAfter = 30 * time.Second

// process is a part of the stack that runs as its own process group. Its stderr
// goes to a file that can be read while it runs.
type process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	stdin   io.Closer     // the part ends when this closes, so also when we die
	stdout  *os.File      // only the first line is of interest
	exited  chan struct{} // closed after cmd.Wait
}

// startProcess runs a command until the test ends. When the test has failed by
// then, the end of the part's log goes to the test's log.
func startProcess(t testing.TB, name, dir string, env []string, command ...string) *process {
	t.Helper()
	p := &process{name: name, logPath: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.logPath)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = dir, env, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer in.Close()
	p.cmd.Stdout, p.stdout = in, out
	if err := p.cmd.Start(); err != nil {
		out.Close()
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.exited)
		// How it ended is told by cmd.ProcessState.
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop(t)
		out.Close()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, p.logTail())
		}
	})
	return p
}

// stop ends the whole process group: asked first, then killed. The part gets
// its time before anything of the group is killed.
//
// A part that has not ended before must end with status 0; a Go part that was
// built with the race detector ends with another one when it found something.
func (p *process) stop(t testing.TB) {
	asked := p.running()
	p.signal(t, syscall.SIGTERM)
	p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(killAfter):
		t.Errorf("%s did not end within %s of SIGTERM", p.name, killAfter)
	}
	p.signal(t, syscall.SIGKILL)
	<-p.exited
	if asked && !p.cmd.ProcessState.Success() {
		t.Errorf("%s ended with %s", p.name, p.cmd.ProcessState)
	}
}

// kill ends the whole process group at once.
func (p *process) kill(t testing.TB) {
	p.signal(t, syscall.SIGKILL)
	<-p.exited
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal %s to %s: %v", s, p.name, err)
	}
}

// running reports whether the part still runs.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// firstLine waits for the part's first line on stdout, and ends with an error
// when the part ends without one or takes too long.
func (p *process) firstLine(timeout time.Duration) (string, error) {
	if err := p.stdout.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s did not come up: %w\n%s", p.name, err, p.logTail())
	}
	return line, nil
}

// logTail returns the last few KB of the part's log.
func (p *process) logTail() string {
	const most = 8 << 10
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}
