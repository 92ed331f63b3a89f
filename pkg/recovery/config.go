package recovery

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Config is what a Client needs. Only Log is required.
type Config struct {
	// Listen is the address for dial-backs; default ":0", a free port on all
	// interfaces. Where a NetworkPolicy must name the port, give one.
	Listen string
	// Advertise is the address that workers are told to dial: an IP, or IP:port
	// where the port differs from ours. By default it is the IP of Listen, or, when
	// that is all interfaces, the one from which the worker was reached.
	Advertise string

	DialTimeout     time.Duration // to connect to the worker, send the request and get its acknowledgement; 5s
	DialBackTimeout time.Duration // from then until the worker has dialled back; 10s
	// Timeout bounds a query as a whole; 60s. A worker makes one dump at a time and
	// lets others wait, and a dump of millions of blocks takes its time.
	Timeout time.Duration

	// MaxQueries is how many queries run at once, 16; more wait. MaxDialBacks is
	// how many connections may be about to say which query they answer, 64; more
	// are closed at once. The memory in use is at most a small multiple of
	// MaxQueries times MaxResponseBytes.
	MaxQueries   int
	MaxDialBacks int
	// MaxResponseBytes bounds one answer, frames and all; 256 MiB. A dump takes
	// some 250 bytes for each block.
	MaxResponseBytes int64

	Log *slog.Logger
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Log == nil {
		errs = append(errs, errors.New("log is not set"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"dial timeout", c.DialTimeout}, {"dial-back timeout", c.DialBackTimeout}, {"timeout", c.Timeout}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s %s is negative", d.name, d.value))
		}
	}
	if c.MaxQueries < 0 || c.MaxDialBacks < 0 || c.MaxResponseBytes < 0 {
		errs = append(errs, errors.New("a limit is negative"))
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			errs = append(errs, fmt.Errorf("listen: %w; want host:port", err))
		}
	}
	if _, _, err := parseAdvertise(c.Advertise); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, ":0")
	c.DialTimeout = cmp.Or(c.DialTimeout, 5*time.Second)
	c.DialBackTimeout = cmp.Or(c.DialBackTimeout, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.MaxQueries = cmp.Or(c.MaxQueries, 16)
	c.MaxDialBacks = cmp.Or(c.MaxDialBacks, 64)
	c.MaxResponseBytes = cmp.Or(c.MaxResponseBytes, 256<<20)
	return c
}

// parseAdvertise reads an IP, or an IP and a port, which is 0 when not given. No
// name: it might stand for several replicas, of which one waits for the answer.
func parseAdvertise(s string) (netip.Addr, uint16, error) {
	if s == "" {
		return netip.Addr{}, 0, nil
	}
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip, 0, unspecified(ip)
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil || addr.Port() == 0 {
		return netip.Addr{}, 0, fmt.Errorf("advertise %.128q: want an IP or IP:port that workers can dial", s)
	}
	return addr.Addr(), addr.Port(), unspecified(addr.Addr())
}

func unspecified(ip netip.Addr) error {
	if ip.IsUnspecified() {
		return fmt.Errorf("advertise %s: workers cannot dial that; give this host's own IP", ip)
	}
	return nil
}

// callback returns the address for a worker to dial: as configured, else the IP
// we listen on, else the one that we have towards the worker.
func (c Config) callback(listener, towards net.Addr) string {
	ip, port, err := parseAdvertise(c.Advertise)
	listening := tcpAddr(listener)
	if err != nil || !ip.IsValid() {
		if ip = listening.Addr(); !ip.IsValid() || ip.IsUnspecified() {
			ip = tcpAddr(towards).Addr()
		}
	}
	if port == 0 {
		port = listening.Port()
	}
	// A zone names an interface of ours: it says nothing to others.
	return net.JoinHostPort(ip.Unmap().WithZone("").String(), strconv.Itoa(int(port)))
}

func tcpAddr(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
