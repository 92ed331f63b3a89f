package v1alpha1

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxBlockSize = 65536
	maxBody      = 1 << 30
	minIndex     = 16 << 20
	maxIndex     = 1 << 38
	maxRanks     = 1024
)

// Validate checks a configuration whose defaults are filled in. The error joins
// one [FieldError] per problem.
func (c *EndpointPickerConfig) Validate() error { return c.problems().join() }

// Inherit fills in what a policy leaves to the configuration file of the picker:
// the connection to NATS, unless it names a server, and where the model's files
// are, unless it names a place. What is mounted into a pod is described by its
// file.
func (s *RoutingPolicySpec) Inherit(file *RoutingPolicySpec) {
	if n := &s.EventPlane.NATS; n.URL == "" {
		namespace := n.Namespace
		*n = file.EventPlane.NATS
		if namespace != "" {
			n.Namespace = namespace
		}
	}
	if in := &s.Tokenizer.InProcess; !s.Tokenizer.Disabled && !in.Enabled() {
		in.Source = file.Tokenizer.InProcess.Source
		if in.ChatTemplate.File == "" {
			in.ChatTemplate.File = file.Tokenizer.InProcess.ChatTemplate.File
		}
	}
}

// CheckPolicy reports what a policy may not say, though a file of the picker may;
// call it before [RoutingPolicySpec.Inherit]. Files must lie in one of the folders:
// whoever writes policies could have any other file of the pod, such as the token
// of its service account, sent to a server of theirs. And a policy that names no
// NATS server takes the whole connection of the file, so that it must not say how to
// sign in or to encrypt.
func (s *RoutingPolicySpec) CheckPolicy(folders []string) error {
	var p problems
	n := &s.EventPlane.NATS
	files := n.files("eventPlane.nats")
	if n.URL == "" && (len(files) > 0 || n.TLS != nil) {
		p.add("eventPlane.nats.url", "required with credentials or tls; a policy without it takes the whole connection of the picker's configuration file")
	}
	for _, f := range files {
		checkFolder(&p, f.field, *f.name, folders)
	}
	for _, name := range s.Tokenizer.InProcess.paths() {
		checkFolder(&p, "tokenizer.inProcess", *name, folders)
	}
	return p.join()
}

func checkFolder(p *problems, path, name string, folders []string) {
	clean := filepath.Clean(name)
	for _, folder := range folders {
		if strings.HasPrefix(clean, strings.TrimSuffix(filepath.Clean(folder), "/")+"/") {
			return
		}
	}
	p.add(path, "%.128q is in none of the folders that policies may use (%s; discovery.kubernetes.policyFileFolders of the picker); mount it there",
		name, strings.Join(folders, ", "))
}

// Validate checks a spec whose defaults are filled in. Paths start at the spec.
func (s *RoutingPolicySpec) Validate() error {
	var p problems
	s.check(&p, "")
	return p.join()
}

func (c *EndpointPickerConfig) problems() problems {
	var p problems
	header(&p, c.APIVersion, c.Kind, KindEndpointPickerConfig)
	c.Server.check(&p, c.Spec.EventPlane.AsksWorkers())
	c.Discovery.check(&p, "discovery")
	c.Spec.check(&p, "spec")
	c.checkBus(&p)
	c.checkNodes(&p)
	return p
}

// checkNodes reports labels of nodes that nobody could read.
func (c *EndpointPickerConfig) checkNodes(p *problems) {
	if c.Discovery.Kubernetes == nil && c.Spec.Topology.LabelsFrom == LabelsFromPodsAndNodes {
		p.add("spec.topology.labelsFrom", "PodsAndNodes reads the nodes of a cluster, and needs discovery.kubernetes; "+
			"leave it out, and name the places in the list of workers (site, or labels)")
	}
}

// checkBus reports a picker that nobody tells where the events are. In a cluster a
// policy may tell it later.
func (c *EndpointPickerConfig) checkBus(p *problems) {
	fromPolicy := c.Discovery.Kubernetes != nil && c.Discovery.Kubernetes.Pool != nil
	if e := &c.Spec.EventPlane; e.NATS.URL == "" && !e.Disabled && !fromPolicy && c.Server.EmbeddedNATS == nil {
		p.add("spec.eventPlane.nats.url", "required, such as nats://127.0.0.1:4222; to do without events set eventPlane.disabled")
	}
}

func header(p *problems, version, kind, want string) {
	if version != APIVersion {
		p.add("apiVersion", "must be %s, not %q", APIVersion, version)
	}
	if kind != want {
		p.add("kind", "must be %s, not %q", want, kind)
	}
}

// check takes whether recoveryAddress will be opened, too.
func (s *ServerConfig) check(p *problems, recovery bool) {
	used := map[string]string{}
	type listener struct {
		path, addr string
		opened     bool
	}
	listeners := []listener{
		{"server.extProcAddress", s.ExtProcAddress, true},
		{"server.healthAddress", s.HealthAddress, true},
		{"server.metricsAddress", s.MetricsAddress, true},
		{"server.recoveryAddress", s.RecoveryAddress, recovery},
	}
	if n := s.EmbeddedNATS; n != nil {
		listeners = append(listeners, listener{"server.embeddedNATS.address", n.Address, true})
	}
	for _, l := range listeners {
		if port, err := listenPort(l.addr); err != nil {
			p.add(l.path, "%s", err)
		} else if other := used[l.addr]; other != "" && port != 0 && l.opened {
			p.add(l.path, "%s is already used by %s", l.addr, other)
		}
		used[l.addr] = l.path
	}
	if t := s.ExtProcTLS; t != nil {
		t.check(p, "server.extProcTLS")
	}
	s.checkAdvertise(p, "server.recoveryAdvertise")
	checkDuration(p, "server.drainTimeout", s.DrainTimeout, 1, time.Hour)
	if s.MaxBodyBytes < 1 || s.MaxBodyBytes > maxBody {
		p.add("server.maxBodyBytes", "must be 1 to %d bytes, not %d", maxBody, s.MaxBodyBytes)
	}
	if s.MaxIndexBytes < minIndex || s.MaxIndexBytes > maxIndex {
		p.add("server.maxIndexBytes", "must be %d to %d bytes, not %d", minIndex, maxIndex, s.MaxIndexBytes)
	}
	checkEnum(p, "server.logLevel", s.LogLevel, LogDebug, LogInfo, LogWarn, LogError)
}

func listenPort(addr string) (uint16, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("%q is not an address to listen on; write host:port or :port", addr)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q has no port from 0 to 65535", addr)
	}
	return uint16(n), nil
}

func (s *RoutingPolicySpec) check(p *problems, path string) {
	if s.BlockSize < 1 || s.BlockSize > maxBlockSize {
		p.add(join(path, "blockSize"), "must be 1 to %d tokens, not %d", maxBlockSize, s.BlockSize)
	}
	distinct(p, map[string]string{}, join(path, "adapters"), s.Adapters)
	checkEnum(p, join(path, "cacheSalt"), s.CacheSalt, CacheSaltHash, CacheSaltIgnore)
	s.Roles.check(p, join(path, "roles"))
	s.EventPlane.check(p, join(path, "eventPlane"))
	s.Tokenizer.check(p, join(path, "tokenizer"))
	s.Cost.check(p, join(path, "cost"))
	s.Disaggregation.check(p, join(path, "disaggregation"))
	s.SessionAffinity.check(p, join(path, "sessionAffinity"))
	s.Topology.check(p, join(path, "topology"))
	s.Admission.check(p, join(path, "admission"))
	s.EngineMetrics.check(p, join(path, "engineMetrics"))
	s.Handoff.check(p, join(path, "handoff"))
	for i := range s.ModelRewrites {
		s.ModelRewrites[i].check(p, fmt.Sprintf("%s[%d]", join(path, "modelRewrites"), i))
	}
}

func (r *RolesSpec) check(p *problems, path string) {
	if len(r.Labels) == 0 {
		p.add(path+".labels", "must name at least one label")
	}
	distinct(p, map[string]string{}, path+".labels", r.Labels)
	// One set for the three lists: a word must not mean two roles.
	words := map[string]string{}
	distinct(p, words, path+".prefill", r.Prefill)
	distinct(p, words, path+".decode", r.Decode)
	distinct(p, words, path+".aggregated", r.Aggregated)
}

// distinct adds list to seen and reports empty words and repeated ones.
func distinct(p *problems, seen map[string]string, path string, list []string) {
	for i, w := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if w == "" {
			p.add(at, "must not be empty")
		} else if first, dup := seen[w]; dup {
			p.add(at, "%q is already in %s", w, first)
		} else {
			seen[w] = at
		}
	}
}

// checkURL checks a base URL. It never repeats the URL: it may hold a password.
func checkURL(p *problems, path, name, raw string, schemes ...string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		p.add(path, "%s has no scheme or no host; write it like %s://host:port", name, schemes[0])
	case !slices.Contains(schemes, u.Scheme):
		p.add(path, "%s has the scheme %q; use one of %s", name, u.Scheme, strings.Join(schemes, ", "))
	case u.RawQuery != "" || u.Fragment != "":
		p.add(path, "%s must not have a query or fragment", name)
	}
}

func (e *EngineTokenizerSpec) check(p *problems, path string) {
	for i, u := range e.URLs {
		checkURL(p, fmt.Sprintf("%s.urls[%d]", path, i), "the URL", u, "http", "https")
	}
	checkEnum(p, path+".protocol", e.Protocol, TokenizeAuto, TokenizeRender, TokenizeTokenize)
	checkDuration(p, path+".timeout", e.Timeout, 1, time.Minute)
	if n := e.Breaker.Failures; n < 1 || n > 1_000_000 {
		p.add(path+".breaker.failures", "must be 1 to 1000000, not %d", n)
	}
	checkDuration(p, path+".breaker.cooldown", e.Breaker.Cooldown, 1, time.Hour)
}

// reservedHeaders have an owner already: Envoy, HTTP or the endpoint picker
// protocol.
var reservedHeaders = []string{
	"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade", "authorization", "x-tenant-id",
	"x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset", "x-gateway-destination-endpoint-served",
}

func (h *HandoffSpec) check(p *problems, path string) {
	if len(h.Headers) == 0 {
		checkEnum(p, path+".preset", h.Preset, HandoffDefault, HandoffDynamo, HandoffNone)
		return
	}
	if h.Preset != "" {
		p.add(path+".preset", "not allowed together with headers; keep one of the two")
	}
	seen := map[string]string{}
	for i, hd := range h.Headers {
		at := fmt.Sprintf("%s.headers[%d]", path, i)
		name := strings.ToLower(hd.Name)
		switch {
		case !isHeaderName(hd.Name):
			p.add(at+".name", "%q is not a header name; use lower-case letters, digits and -", hd.Name)
		case isReserved(name):
			p.add(at+".name", "%s is used for something else; choose another header", name)
		case seen[name] != "":
			p.add(at+".name", "%s is already in %s", name, seen[name])
		}
		seen[name] = at
		checkEnum(p, at+".value", hd.Value, PrefillEndpoint, PrefillInstanceID, PrefillRank,
			DecodeEndpoint, DecodeInstanceID, DecodeRank, RoutingMode, RequestID)
	}
}

func isReserved(name string) bool { return slices.Contains(reservedHeaders, strings.ToLower(name)) }

func isHeaderName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

func checkEnum[T ~string](p *problems, path string, got T, known ...T) {
	if slices.Contains(known, got) {
		return
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	if got == "" {
		p.add(path, "required: one of %s", strings.Join(names, ", "))
		return
	}
	p.add(path, "%q is not known (%s)", got, suggest(string(got), names))
}

func checkDuration(p *problems, path string, got Duration, least, most time.Duration) {
	if got.Duration >= least && got.Duration <= most {
		return
	}
	if least == 1 {
		p.add(path, "must be above 0 and at most %s, not %s", most, got)
		return
	}
	p.add(path, "must be %s to %s, not %s", least, most, got)
}
