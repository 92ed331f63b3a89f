package testcluster

import (
	"strings"
	"testing"
)

// TestProcess ends processes that take SIGTERM well, badly, and not at all.
func TestProcess(t *testing.T) {
	run := func(name, script string) *Process {
		t.Helper()
		p, err := StartProcess(name, []string{"WORD=hello"}, "sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		eventually(t, name+" runs", func() bool { return p.Output() == "hello\n" })
		return p
	}
	const wait = `; echo $WORD; while [ -z "$code" ]; do sleep 0.05; done; exit $code`
	good := run("good", "trap 'code=0' TERM"+wait)
	if good.Name() != "good" || !good.Running() || good.State() != "" {
		t.Errorf("%s runs: %v, state %q", good.Name(), good.Running(), good.State())
	}
	good.Terminate()
	if err := good.Stop(); err != nil {
		t.Error(err)
	}
	if good.Running() || good.State() != "exit status 0" {
		t.Errorf("it ended: running %v, state %q", good.Running(), good.State())
	}
	bad := run("bad", "trap 'code=3' TERM"+wait)
	if err := bad.Stop(); err == nil || !strings.Contains(err.Error(), "bad ended with exit status 3") || !strings.Contains(err.Error(), "hello") {
		t.Errorf("got %v", err)
	}
	deaf := run("deaf", "trap '' TERM; echo $WORD; exec sleep 60")
	deaf.Terminate()
	deaf.Kill()
	if deaf.State() != "signal: killed" {
		t.Errorf("state %q", deaf.State())
	}
}
