package v1alpha1

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Validate checks a list whose defaults are filled in. The error joins one
// [FieldError] per problem.
func (l *WorkerList) Validate() error { return l.problems().join() }

func (l *WorkerList) problems() problems {
	var p problems
	header(&p, l.APIVersion, l.Kind, KindWorkerList)
	if l.Workers == nil {
		p.add("workers", "required; write [] for a pool with no worker")
	}
	names := map[string]int{}
	ids := map[WorkerID]int{}
	endpoints := map[netip.AddrPort]int{}
	recovery := map[string]string{}
	for i := range l.Workers {
		w, path := &l.Workers[i], workerPath(i)
		if w.Name == "" {
			p.add(path+".name", "required")
		} else if j, dup := names[w.Name]; dup {
			p.add(path+".name", "%q is already the name of %s", w.Name, workerPath(j))
		} else {
			names[w.Name] = i
		}
		if w.WorkerID != nil {
			if j, dup := ids[*w.WorkerID]; dup {
				p.add(path+".workerID", "%d is already the id of %s", *w.WorkerID, workerPath(j))
			}
			ids[*w.WorkerID] = i
		}
		checkCount(&p, path+".kvBlocks", &w.KVBlocks, maxBound)
		checkCount(&p, path+".maxBatchedTokens", &w.MaxBatchedTokens, maxBound)
		w.checkSite(&p, path)
		w.checkEndpoints(&p, path, i, endpoints)
		w.checkRecovery(&p, path, recovery)
	}
	return p
}

// maxPlace is as long as a name in DNS.
const maxPlace = 253

func (w *WorkerSpec) checkSite(p *problems, path string) {
	for _, f := range []struct{ name, text string }{
		{"site.zone", w.Site.Zone},
		{"site.rack", w.Site.Rack},
		{"site.host", w.Site.Host},
		{"site.fabric", w.Site.Fabric},
		{"connector", w.Connector},
	} {
		if len(f.text) > maxPlace || strings.ContainsFunc(f.text, unicode.IsControl) {
			p.add(path+"."+f.name, "must be at most %d printable characters", maxPlace)
		}
	}
}

func workerPath(i int) string { return fmt.Sprintf("workers[%d]", i) }

// checkEndpoints checks address, ports and ranks. endpoints maps the endpoints of
// the workers before to their position.
func (w *WorkerSpec) checkEndpoints(p *problems, path string, index int, endpoints map[netip.AddrPort]int) {
	addr, err := w.IP()
	if err != nil {
		p.add(path+".address", "%s", err)
	}
	if len(w.Ports) == 0 || len(w.Ports) > maxRanks {
		p.add(path+".ports", "must be 1 to %d ports, not %d", maxRanks, len(w.Ports))
	}
	for k, port := range w.Ports {
		at := fmt.Sprintf("%s.ports[%d]", path, k)
		if port < 1 || port > 65535 {
			p.add(at, "must be 1 to 65535, not %d", port)
			continue
		}
		if err != nil {
			continue
		}
		ep := netip.AddrPortFrom(addr, uint16(port))
		if j, dup := endpoints[ep]; dup {
			p.add(at, "%s is already an endpoint of %s", ep, workerPath(j))
		}
		endpoints[ep] = index
	}
	if n := w.DataParallelSize; n < 1 || n > maxRanks {
		p.add(path+".dataParallelSize", "must be 1 to %d, not %d", maxRanks, n)
	} else if len(w.Ports) > 1 && n != len(w.Ports) {
		p.add(path+".dataParallelSize", "is %d but there are %d ports; list one port for all ranks or one for each", n, len(w.Ports))
	}
}

// maxRecoveryPath is far above any path that Dynamo writes, some 80 bytes.
const maxRecoveryPath = 4 << 10

// checkRecovery checks the recovery endpoints. used maps those of the workers
// before to their field: with one for two ranks, one of the two would be taken to
// hold what the other does.
func (w *WorkerSpec) checkRecovery(p *problems, path string, used map[string]string) {
	if n := len(w.RecoveryEndpoints); n > 0 && n != w.DataParallelSize {
		p.add(path+".recoveryEndpoints", "lists %d for %d data-parallel ranks; list one for each rank, or none", n, w.DataParallelSize)
	}
	for k, e := range w.RecoveryEndpoints {
		at := fmt.Sprintf("%s.recoveryEndpoints[%d]", path, k)
		if err := checkRecoveryEndpoint(e); err != nil {
			p.add(at, "%s", err)
		} else if other := used[e]; other != "" {
			p.add(at, "is already in %s", other)
		} else {
			used[e] = at
		}
	}
}

// checkRecoveryEndpoint checks the form host:port/path (dynamo.md 1.9).
func checkRecoveryEndpoint(e string) error {
	address, path, _ := strings.Cut(e, "/")
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" || strings.ContainsFunc(host, unprintable) {
		return fmt.Errorf("%.128q does not start with host:port; write host:port/path, as Dynamo's discovery has it under tcp", e)
	}
	if path == "" || len(path) > maxRecoveryPath || strings.ContainsFunc(path, unprintable) {
		return fmt.Errorf("%.128q needs a path of 1 to %d characters, without spaces, behind host:port", e, maxRecoveryPath)
	}
	return nil
}

// unprintable is what no host and no path has.
func unprintable(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// IP returns the worker's address. IPv4 in IPv6 form becomes plain IPv4, the form
// in which gateways write it.
func (w *WorkerSpec) IP() (netip.Addr, error) {
	if w.Address == "" {
		return netip.Addr{}, errors.New("required: an IPv4 or IPv6 address")
	}
	a, err := netip.ParseAddr(w.Address)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 or IPv6 address; host names are not resolved", w.Address)
	case a.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%q has a zone, which a gateway cannot use", w.Address)
	case a.IsUnspecified() || a.IsMulticast():
		return netip.Addr{}, fmt.Errorf("%q is not the address of one worker", w.Address)
	}
	return a.Unmap(), nil
}
