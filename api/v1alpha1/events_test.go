package v1alpha1

import (
	"strings"
	"testing"
	"time"
)

func TestDurationTextIsShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", time.Minute: "1m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s",
		time.Hour: "1h", time.Hour + 30*time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 720 * time.Hour: "720h",
		1500 * time.Millisecond: "1.5s", -time.Hour: "-1h",
	} {
		text, err := Duration{d}.MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("%s is written as %q, %v; want %q", d, text, err, want)
		}
		var again Duration
		if err := again.UnmarshalText(text); err != nil || again.Duration != d {
			t.Errorf("%q is read as %s, %v; want %s", text, again, err, d)
		}
	}
}

func TestEventPlaneDefaults(t *testing.T) {
	c, err := Decode([]byte(minimal), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := &c.Spec.EventPlane
	if e.TellsRouters() || e.JetStream.Enabled || e.Recovery.Disabled || !e.AsksWorkers() {
		t.Errorf("on or off: %+v", e)
	}
	if e.SpeculationTTL.Duration != 5*time.Second || e.JetStream.SnapshotInterval.Duration != time.Minute ||
		e.WarmUp.Timeout.Duration != 30*time.Second || !*e.WarmUp.FromPeers {
		t.Errorf("what may be zero: %+v", e)
	}
	if s := &c.Server; s.MaxIndexBytes != 2<<30 || s.RecoveryAddress != ":9004" || s.RecoveryAdvertise != "" {
		t.Errorf("server: %+v", s)
	}
}

func TestAsksWorkers(t *testing.T) {
	for _, c := range []struct{ disabled, recovery, want bool }{{false, false, false}, {false, true, true}, {true, true, false}, {true, false, false}} {
		e := EventPlaneSpec{Disabled: c.disabled, Recovery: RecoverySpec{Disabled: !c.recovery}}
		if got := e.AsksWorkers(); got != c.want {
			t.Errorf("events disabled %v, recovery %v: asks %v", c.disabled, c.recovery, got)
		}
	}
}

func TestRecoveryAdvertise(t *testing.T) {
	for advertise, want := range map[string]string{
		"":                       "",
		"10.0.0.7":               "",
		"10.0.0.7:1":             "",
		"fd00::7":                "",
		"[fd00::7]:65535":        "",
		"::ffff:10.0.0.7":        "",
		"10.0.0.7:0":             "write an IP or IP:port",
		"10.0.0.7:":              "write an IP or IP:port",
		"10.0.0.7:65536":         "write an IP or IP:port",
		":9004":                  "write an IP or IP:port",
		"[fd00::7]":              "write an IP or IP:port",
		"localhost":              "host names are not resolved",
		"http://10.0.0.7":        "write an IP or IP:port",
		"0.0.0.0":                "workers can connect to",
		"[::]:9004":              "workers can connect to",
		"224.0.0.1":              "workers can connect to",
		"fe80::1%eth0":           "without a zone",
		strings.Repeat("1", 4e3): "write an IP or IP:port",
	} {
		c, err := Decode([]byte(minimal), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		c.Server.RecoveryAdvertise = advertise
		err = c.Validate()
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", advertise, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "server.recoveryAdvertise: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%.64q: error %v, want %q", advertise, err, want)
		case err != nil && len(err.Error()) > 400:
			t.Errorf("%.64q: an error of %d bytes", advertise, len(err.Error()))
		}
	}
}

func TestStreamNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "AZ_az-09": true, strings.Repeat("s", 64): true,
		"": false, "a b": false, "a.b": false, "a*": false, "a>": false, "a/b": false, `a\b`: false, "a\tb": false, "a\x00": false, "é": false,
		strings.Repeat("s", 65): false,
	} {
		c, err := Decode([]byte(minimal), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		c.Spec.EventPlane.JetStream.Stream = name
		if err := c.Validate(); (err == nil) != good {
			t.Errorf("stream %q: %v", name, err)
		}
	}
}
