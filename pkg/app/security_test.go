package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// TestPasswordFromFiles: from files beside the configuration to a subscription on
// a server that lets nobody else in.
func TestPasswordFromFiles(t *testing.T) {
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Username: "picker", Password: "s3cret",
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { stopNATS(ns) })
	if !ns.ReadyForConnections(deadline) {
		t.Fatal("the NATS server did not start")
	}
	dir, config := files(t, "eventPlane: {nats: {url: \"nats://"+ns.Addr().String()+"\", namespace: ns, userFile: user, passwordFile: password}}", prefillA+decodeA)
	for name, content := range map[string]string{"user": "picker\n", "password": "s3cret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	a, err := New(cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a, dir, log)
	r.waitSubscribed(t, ns)
	r.waitMetric(t, "warmpath_event_plane_connected", 1)
	r.shutdown(t)
	if strings.Contains(log.String(), "s3cret") {
		t.Error("the log has the password")
	}

	if err := os.Remove(filepath.Join(dir, "password")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, logger); err == nil || !strings.Contains(err.Error(), "passwordFile") {
		t.Errorf("without the password: error %v, want one that names the field", err)
	}
}
