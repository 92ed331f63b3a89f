package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

const (
	maxStreamName   = 64
	maxCopies       = 5 // JetStream's own limit
	minStream       = 1 << 20
	maxStreamAge    = 720 * time.Hour
	minSnapshotTime = 10 * time.Second
	maxSnapshotTime = 24 * time.Hour
)

func (e *EventPlaneSpec) check(p *problems, path string) {
	if e.SpeculationTTL != nil {
		checkDuration(p, path+".speculationTTL", *e.SpeculationTTL, 0, time.Hour)
	}
	e.NATS.check(p, path+".nats")
	if e.Disabled {
		e.checkDisabled(p, path)
	}
	e.JetStream.check(p, path+".jetStream")
	checkDuration(p, path+".recovery.timeout", e.Recovery.Timeout, time.Second, 10*time.Minute)
	if t := e.WarmUp.Timeout; t != nil {
		checkDuration(p, path+".warmUp.timeout", *t, 0, 10*time.Minute)
	}
}

// checkDisabled reports what somebody turned on in vain.
func (e *EventPlaneSpec) checkDisabled(p *problems, path string) {
	for _, f := range []struct {
		field string
		on    bool
	}{{".jetStream.enabled", e.JetStream.Enabled}, {".replicaSync", e.TellsRouters()}} {
		if f.on {
			p.add(path+f.field, "needs events, which eventPlane.disabled turns off; remove one of the two")
		}
	}
}

func (j *JetStreamSpec) check(p *problems, path string) {
	switch {
	case j.Stream == "":
		p.add(path+".stream", "must not be empty")
	case len(j.Stream) > maxStreamName || strings.Trim(j.Stream, streamNameChars) != "":
		p.add(path+".stream", "%.128q is not the name of a stream; use letters, digits, - and _, at most %d", j.Stream, maxStreamName)
	}
	checkEnum(p, path+".storage", j.Storage, StorageFile, StorageMemory)
	if j.Replicas < 1 || j.Replicas > maxCopies {
		p.add(path+".replicas", "must be 1 to %d, not %d", maxCopies, j.Replicas)
	}
	checkDuration(p, path+".maxAge", j.MaxAge, 1, maxStreamAge)
	if j.MaxBytes < minStream {
		p.add(path+".maxBytes", "must be at least %d bytes, not %d", minStream, j.MaxBytes)
	}
	j.checkSnapshots(p, path+".snapshotInterval")
}

// checkSnapshots also compares the interval with the age of the log: a snapshot
// is of use only with all the events after it.
func (j *JetStreamSpec) checkSnapshots(p *problems, path string) {
	if j.SnapshotInterval == nil || j.SnapshotInterval.Duration == 0 {
		return
	}
	every := *j.SnapshotInterval
	switch {
	case every.Duration < minSnapshotTime || every.Duration > maxSnapshotTime:
		p.add(path, "must be 0s, or %s to %s, not %s", minSnapshotTime, maxSnapshotTime, every)
	case j.Enabled && j.MaxAge.Duration > 0 && every.Duration >= j.MaxAge.Duration:
		p.add(path, "%s is not below maxAge, %s: events after a snapshot would be gone before the next; make it shorter, or 0s", every, j.MaxAge)
	}
}

// streamNameChars are fewer than JetStream allows, so that names made from that
// of the stream, such as that of a bucket of snapshots, are good as well.
const streamNameChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// checkAdvertise checks the address for workers to connect to. A name will not
// do: it may stand for several replicas, of which one waits for the answer.
func (s *ServerConfig) checkAdvertise(p *problems, path string) {
	if s.RecoveryAdvertise == "" {
		return
	}
	ip, port, err := splitAdvertise(s.RecoveryAdvertise)
	if err != nil {
		p.add(path, "%s", err)
		return
	}
	listen, err := listenPort(s.RecoveryAddress)
	if err == nil && listen == 0 && port != 0 {
		p.add(path, "names port %d, but recoveryAddress takes any free port; give recoveryAddress a port, or advertise only %s", port, ip)
	}
}

// splitAdvertise returns port 0 when there is none.
func splitAdvertise(text string) (ip netip.Addr, port uint16, err error) {
	if ip, err = netip.ParseAddr(text); err != nil {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Port() == 0 {
			return ip, 0, fmt.Errorf("%.128q is not an address to connect to; write an IP or IP:port, host names are not resolved", text)
		}
		ip, port = a.Addr(), a.Port()
	}
	if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return ip, 0, fmt.Errorf("%s is not an address that workers can connect to; write an IP of this host, without a zone", ip)
	}
	return ip, port, nil
}
