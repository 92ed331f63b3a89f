package embedded

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const patience = time.Minute

func TestServes(t *testing.T) {
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	c, err := nats.Connect(s.URL(), nats.Timeout(patience), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
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
	if m, err := sub.NextMsg(patience); err != nil || string(m.Data) != "told" {
		t.Errorf("got %v, %v", m, err)
	}
	server := c.ConnectedServerId()
	s.Close()
	<-closed
	if other, err := nats.Connect(s.URL()); err == nil { // somebody else may have the port by now
		if other.ConnectedServerId() == server {
			t.Error("still serves after Close")
		}
		other.Close()
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
