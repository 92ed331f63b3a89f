package embedded

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestServes(t *testing.T) {
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sub, err := c.SubscribeSync("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish("a", []byte("told")); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.NextMsg(10 * time.Second); err != nil || string(m.Data) != "told" {
		t.Errorf("got %v, %v", m, err)
	}
	s.Close()
	if _, err := nats.Connect(s.URL()); err == nil {
		t.Error("still serves after Close")
	}
}

func TestRefusesAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		taken.Addr().String(): "in use",
		"4222":                "missing port",
		":70000":              "0 to 65535",
	} {
		if _, err := Start(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
