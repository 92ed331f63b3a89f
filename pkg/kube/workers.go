package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// mainContainer is the container whose worker has the pod's name alone, where
// containers have identities of their own (dynamo.md 3.1).
const mainContainer = "main"

// rules say how pods become workers.
type rules struct {
	roles       fleet.RoleRules
	sites       fleet.SiteRules
	nodeLabels  func(node string) map[string]string // nil: those of nodes do not count
	identity    v1alpha1.WorkerIdentity
	activePorts []string // annotations, the first that is there counts
}

// process is an engine: a pod, or one container of it.
type process struct {
	pod       *corev1.Pod
	container string // empty: the pod as a whole
	name      string // what its id is made of
	said      *said  // nil: nothing
	restarts  int32
	absent    string         // why it takes no requests; empty when it does
	ranks     []fleet.Worker // ready or not; without an endpoint when it has none
	hasRole   bool
}

// population is who is in a pool at one moment.
type population struct {
	workers   []fleet.Worker // those that take requests
	processes []process      // all that match, ready or not
	refs      []Problem
	roles     []Problem
}

// populate finds the workers among the pods of a namespace. metadata has what each
// worker says of itself, by the name that its id is made of.
func populate(t target, pods []*corev1.Pod, metadata map[string]*workerMetadata, r rules) population {
	// In one order, so that the same pods make the same messages.
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	var p population
	var found roleFindings
	var ports portFindings
	for _, pod := range pods {
		if !t.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		active := activePorts(t, pod, r.activePorts, &ports)
		for _, one := range processesOf(t, pod, r.identity) {
			one.said = saidBy(metadata, one.name, pod)
			one.place(t, active, r, &found)
			p.processes = append(p.processes, one)
		}
	}
	// In the order of age, so that of two with one key the older stays.
	slices.SortStableFunc(p.processes, func(a, b process) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.name, b.name))
	})
	twins := p.collect()
	p.refs = ports.problems(t)
	p.roles = slices.Concat(notReady(t, len(pods), p.processes), found.problems(), missingHalf(p.workers), twins)
	return p
}

// collect takes the ranks of the processes that are ready, one process for each id.
func (p *population) collect() []Problem {
	var twins []Problem
	owner := map[uint64]string{}
	for i := range p.processes {
		one := &p.processes[i]
		if one.absent != "" || !one.hasRole {
			continue
		}
		if older, taken := owner[one.ranks[0].ID]; taken {
			if len(twins) < maxNames {
				twins = append(twins, duplicate(older, one))
			}
			continue
		}
		owner[one.ranks[0].ID] = one.name
		p.workers = append(p.workers, one.ranks...)
	}
	slices.SortFunc(p.workers, func(a, b fleet.Worker) int { return a.Compare(b.Key) })
	return twins
}

func duplicate(older string, one *process) Problem {
	return Problem{reasonDuplicateWorker, "workers " + older + " and " + one.name + " (pod " + one.pod.Name + ") have the same id " +
		one.ranks[0].String() + ", so that their events cannot be told apart; " + one.pod.Name + ", the newer, gets no requests; give it another name"}
}

// processesOf returns the engines of a pod. Where containers have identities, they
// are those that declare a target port.
func processesOf(t target, pod *corev1.Pod, identity v1alpha1.WorkerIdentity) []process {
	if identity != v1alpha1.IdentityContainer {
		one := process{pod: pod, name: pod.Name, absent: whyAbsent(pod, podReady(pod))}
		engines := t.enginesOf(pod)
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; len(engines) == 0 || slices.Contains(engines, s.Name) {
				one.restarts += s.RestartCount
			}
		}
		return []process{one}
	}
	var all []process
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return slices.Contains(t.ports, uint16(p.ContainerPort)) }) {
			continue
		}
		one := process{pod: pod, container: c.Name, name: pod.Name + "-" + c.Name}
		if c.Name == mainContainer {
			one.name = pod.Name
		}
		ready := false
		for j := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[j]; s.Name == c.Name {
				one.restarts, ready = s.RestartCount, s.Ready
			}
		}
		one.absent = whyAbsent(pod, ready)
		all = append(all, one)
	}
	return all
}

// enginesOf returns the containers of a pod that declare a target port, whose restart
// costs the cache; none when no container does, and any may be the engine.
func (t *target) enginesOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return slices.Contains(t.ports, uint16(p.ContainerPort)) }) {
			names = append(names, c.Name)
		}
	}
	return names
}

// Why an engine takes no requests, in the words of messages.
const (
	absentTerminating = "terminating"
	absentNotReady    = "not Ready"
	absentNoIP        = "without an IP address"
	absentNoPort      = "without an active port"
)

func whyAbsent(pod *corev1.Pod, ready bool) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return absentTerminating
	case !podIP(pod).IsValid():
		return absentNoIP
	case !ready:
		return absentNotReady
	}
	return ""
}

func podReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podIP returns a pod's first address: of a pod with two families, the one that
// the cluster prefers. It is not valid when the pod has none.
func podIP(pod *corev1.Pod) netip.Addr {
	text := pod.Status.PodIP
	if text == "" && len(pod.Status.PodIPs) > 0 {
		text = pod.Status.PodIPs[0].IP
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// place gives an engine its role and its ranks. active says which of the target's
// ports the pod serves.
func (p *process) place(t target, active []bool, r rules, found *roleFindings) {
	role, ok, odd := roleOf(r.roles, roleLabels(r.roles, p.pod, p.container))
	p.hasRole = ok
	switch {
	case !ok:
		found.unknown.add(odd, p.pod.Name)
	case odd.label != "":
		found.conflicting.add(odd, p.pod.Name)
	}
	ports := p.ports(t, active)
	if len(ports) == 0 && p.absent == "" {
		p.absent = absentNoPort
	}
	said := p.said
	if said == nil {
		said = &silent
	}
	says, site := fleet.Say(said.Advertised), siteOf(&r, p.pod)
	id, ip := fleet.WorkerID(p.name), podIP(p.pod)
	add := func(index int, port uint16) {
		rank := said.startRank + uint32(index)
		p.ranks = append(p.ranks, fleet.Worker{
			Key: fleet.Key{ID: id, Rank: rank}, Name: p.name, Endpoint: netip.AddrPortFrom(ip, port),
			Role: role, Recovery: said.recovery[rank], Says: says, Site: site,
		})
	}
	switch {
	case len(ports) == 0: // nothing to send to, but something that can restart
		add(0, 0)
	case p.single(t):
		for i := range max(said.ranks, 1) {
			add(i, ports[0].number)
		}
	default:
		for _, port := range ports {
			add(port.index, port.number)
		}
	}
}

// silent is a worker that says nothing of itself.
var silent said

// single says whether all ranks of the engine are behind one port.
func (p *process) single(t target) bool {
	return len(t.ports) == 1 || p.container != "" && len(p.ports(t, nil)) == 1
}

// targetPort is a port and its place among those of the engine: its rank.
type targetPort struct {
	index  int
	number uint16
}

// ports returns the ports that an engine serves, of those that are active; a nil
// list means all. Ranks of a container count among its own ports.
func (p *process) ports(t target, active []bool) []targetPort {
	var list []targetPort
	index := 0
	for i, number := range t.ports {
		if p.container != "" && !p.declares(number) {
			continue
		}
		if active == nil || active[i] {
			list = append(list, targetPort{index, number})
		}
		index++
	}
	return list
}

func (p *process) declares(port uint16) bool {
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		if c.Name == p.container {
			return slices.ContainsFunc(c.Ports, func(d corev1.ContainerPort) bool { return d.ContainerPort == int32(port) })
		}
	}
	return false
}

// saidBy returns what a worker says of itself. What an earlier pod of that name
// left behind does not count.
func saidBy(metadata map[string]*workerMetadata, name string, pod *corev1.Pod) *said {
	m := metadata[name]
	if m == nil || m.said == nil {
		return nil
	}
	for i := range m.OwnerReferences {
		if o := &m.OwnerReferences[i]; o.Kind == "Pod" && o.UID != "" && pod.UID != "" && o.UID != pod.UID {
			return nil
		}
	}
	return m.said
}

// portFindings collects annotations that name ports which the pool does not have.
type portFindings struct{ unknown groups[[2]string] }

func (f *portFindings) problems(t target) []Problem {
	var all []Problem
	f.unknown.each(func(key [2]string, pods string) {
		all = append(all, Problem{reasonUnknownPort, "annotation " + key[0] + " names " + key[1] + ", which is no target port of " + t.where +
			", on these pods: " + pods + "; correct the annotation, or add the port to the pool"})
	})
	return all
}

// activePorts says which of the target's ports a pod serves, by the first of the
// annotations that it has; nil for all.
func activePorts(t target, pod *corev1.Pod, annotations []string, found *portFindings) []bool {
	for _, name := range annotations {
		value, present := pod.Annotations[name]
		if !present {
			continue
		}
		active := make([]bool, len(t.ports))
		for text := range strings.SplitSeq(value, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			number, err := strconv.ParseUint(text, 10, 16)
			i := slices.Index(t.ports, uint16(number))
			if err != nil || i < 0 {
				const enough = 64 // of a text that may be of any length
				found.unknown.add([2]string{name, strconv.Quote(text[:min(len(text), enough)])}, pod.Name)
				continue
			}
			active[i] = true
		}
		return active
	}
	return nil
}
