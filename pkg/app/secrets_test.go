package app

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// noAPIServer says how to reach an API server that is not there.
const noAPIServer = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`

// TestSecretsComeLater: in a cluster a Secret may be mounted after the picker has
// started. Policies that come meanwhile do not stand in the way.
func TestSecretsComeLater(t *testing.T) {
	for name, changes := range map[string]int{"no policy": 0, "policies": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secretsComeLater(t, changes)
		})
	}
}

func secretsComeLater(t *testing.T, changes int) {
	t.Helper()
	ns := startServer(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Username: "picker", Password: "s3cret",
	})
	dir, config := files(t, "eventPlane: {nats: {url: \"nats://"+ns.Addr().String()+"\", userFile: user, passwordFile: password}}", "")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	write("epp.yaml", strings.Replace(string(text), "{file: {path: workers.yaml}}", "{kubernetes: {pool: {name: llm, namespace: x}, kubeconfig: kubeconfig}}", 1))
	write("kubeconfig", noAPIServer)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	a, err := New(cfg, textLog(log))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a, dir, log)
	r.eventually(t, "the log names the file", func() bool {
		return log.count("a secret of the event plane cannot be used") == 1 && strings.Contains(log.String(), "userFile: open "+filepath.Join(dir, "user"))
	})
	o := a.Observe()
	if len(o.MissingFiles) != 2 || o.Events.Connected || !strings.Contains(o.Events.LastError, "userFile") || strings.Contains(o.Events.LastError, "\n") {
		t.Errorf("observed %+v", o)
	}

	var policies sync.WaitGroup
	policies.Go(func() {
		for n := range changes {
			spec := r.changed(func(s *v1alpha1.RoutingPolicySpec) { s.Admission.ActiveDecodeBlocksThreshold = new(int64(n + 1)) })
			if err := a.Apply(t.Context(), spec); err != nil {
				t.Errorf("apply a policy: %v", err)
			}
		}
	})
	write("user", "picker\n")
	write("password", "s3cret\n")
	policies.Wait()
	r.eventually(t, "the event plane is connected", func() bool { return a.Observe().Events.Connected })
	if o := a.Observe(); len(o.MissingFiles) > 0 || o.Events.LastError != "" {
		t.Errorf("observed %+v", o)
	}
	spec := r.changed(func(s *v1alpha1.RoutingPolicySpec) { s.EventPlane.NATS.PasswordFile = filepath.Join(dir, "nowhere") })
	before := a.current.Load()
	if err := a.Apply(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a policy whose Secret is missing: %v", err)
	}
	if a.current.Load() != before || !a.Observe().Events.Connected {
		t.Error("what is known was given up for a Secret that is missing")
	}
	if n := a.current.Load().spec.Admission.ActiveDecodeBlocksThreshold; (n == nil) != (changes == 0) || n != nil && *n != int64(changes) {
		t.Errorf("the policy in use is number %d, want the last, %d", n, changes)
	}
	if n := connections(t, ns); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
