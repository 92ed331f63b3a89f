package app

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// A picker that serves NATS itself hears what is published there, and its policies
// inherit it.
func TestEmbeddedNATS(t *testing.T) {
	dir, config := files(t, noText, prefillA+decodeA)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "server: {", `server: {embeddedNATS: {address: "127.0.0.1:0"}, `, 1)
	if changed == string(text) {
		t.Fatalf("no server in %s", text)
	}
	if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	a, err := New(cfg, textLog(log))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Spec.EventPlane.NATS.URL != a.bus.URL() {
		t.Errorf("the spec hears %q, not %q", cfg.Spec.EventPlane.NATS.URL, a.bus.URL())
	}
	r := run(t, a, dir, log)
	r.waitReady(t)
	r.eventually(t, "the picker hears its own server", func() bool { return a.Observe().Events.Connected })
	conn, err := nats.Connect(a.bus.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Publish("namespace.dynamo.component.backend.kv-events", []byte("no event")); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "what is published is heard", func() bool {
		return log.count("an event could not be read") == 1 && strings.Contains(log.String(), "component.backend.kv-events")
	})
}
