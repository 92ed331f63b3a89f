package testcluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a process has between SIGTERM and SIGKILL.
const stopTimeout = 30 * time.Second

// Process is a program that a test runs. On Linux it ends with the test binary,
// however that ends.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output lockedBuffer
	done   chan struct{}
}

// StartProcess runs a program; env is added to the environment. The caller must
// call Stop or Kill.
func StartProcess(name string, env []string, command ...string) (*Process, error) {
	p := &Process{name: name, cmd: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.WaitDelay = stopTimeout
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
		<-p.done
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Name is what the process was called.
func (p *Process) Name() string { return p.name }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Output is what the process wrote so far, to standard output and error.
func (p *Process) Output() string { return p.output.String() }

// Stop ends the process with SIGTERM and waits for it. The error says that it did
// not end well, and what it wrote last.
func (p *Process) Stop() error {
	if p.Running() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s had not ended %s after SIGTERM; it wrote:\n%s", p.name, stopTimeout, p.tail())
	}
	if state := p.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s ended with %s; it wrote:\n%s", p.name, state, p.tail())
	}
	return nil
}

// Kill ends the process as a crash would, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it has ended when this fails
	<-p.done
}

// tail is the end of the output, for errors.
func (p *Process) tail() string {
	const most = 4096
	out := p.Output()
	return out[max(0, len(out)-most):]
}

// lockedBuffer is a buffer that is read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write never fails.
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
