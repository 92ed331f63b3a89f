package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Reasons of conditions. Those of problems come from the watcher.
const (
	reasonResolvedRefs = "ResolvedRefs"
	reasonRoles        = "RolesResolved"
	reasonNotSynced    = "NotSynced"
	reasonFileNotFound = "FileNotFound"
	reasonFileUnusable = "FileUnusable"

	reasonFlowing       = "Flowing"
	reasonConnected     = "Connected"
	reasonWarmingUp     = "WarmingUp"
	reasonNoEvents      = "NoEvents"
	reasonDisconnected  = "Disconnected"
	reasonNoServer      = "NoServer"
	reasonDisabled      = "Disabled"
	reasonUnknownEvents = "EventsFromUnknownWorkers"

	reasonPrefixAware    = "PrefixAware"
	reasonNoTraffic      = "NoTraffic"
	reasonEventsDisabled = "EventsDisabled"
	reasonNoCredit       = "OverlapIgnored"
	reasonNoTokens       = "NoTokens"
	reasonWrongRole      = "WrongRole"
	reasonNothingIndexed = "NothingIndexed"
	reasonNoHits         = "NoHits"

	reasonReady       = "Ready"
	reasonLoadOnly    = "LoadOnly"
	reasonApproximate = "Approximate"
)

const (
	// maxMessage is far below what the API server takes, and enough to read.
	maxMessage = 2048
	// manyBlocks are so many that some would be shared in any traffic that a prefix
	// cache helps.
	manyBlocks = 200
	// newBlocks that no worker held make events for certain.
	newBlocks = 20
)

// facts are what conditions are made of.
type facts struct {
	view View
	obs  Observation
	pol  policyState
	now  figures // of the window
	past figures // that a verdict is based on
}

// conditions says how the pool and its policy are. The time of transition is now:
// see merge.
func conditions(view View, obs Observation, win window, pol policyState, now time.Time, gen int64) []metav1.Condition {
	f := &facts{view: view, obs: obs, pol: pol, now: win.figures(), past: win.judged()}
	events := f.eventPlane()
	list := []metav1.Condition{
		condition(v1alpha1.ConditionAccepted, pol.Accepted, pol.Reason, pol.Message+f.vain()),
		f.refs(),
		f.roles(),
		events,
		f.prefixAware(events),
	}
	list = append(list, f.ready(list))
	for i := range list {
		list[i].ObservedGeneration = gen
		list[i].LastTransitionTime = metav1.NewTime(now)
	}
	return list
}

// vain says which field of the spec in use has no effect on this pool.
func (f *facts) vain() string {
	spec, pool := f.pol.Spec, f.view.Snapshot
	if f.pol.Accepted != metav1.ConditionTrue || spec == nil || pool == nil || !spec.Disaggregation.Conditional() || !spec.NeedsPair() ||
		pool.Count(fleet.Prefill) == 0 || pool.Count(fleet.Aggregated) > 0 {
		return ""
	}
	return fmt.Sprintf(" disaggregation.condition: %s has no effect: the handoff needs both workers of a pair (disaggregation.needsPair), "+
		"and the pool has no aggregated worker to take the prompts that should not be split. Add some, or remove the condition.", spec.Disaggregation.Condition)
}

// merge keeps the times of transition of conditions whose status is as before.
func merge(before, after []metav1.Condition) []metav1.Condition {
	for i := range after {
		if old := meta.FindStatusCondition(before, after[i].Type); old != nil && old.Status == after[i].Status {
			after[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return after
}

// conflicted says of a policy that an older one is in use.
func conflicted(policy, older *v1alpha1.RoutingPolicy, now time.Time) []metav1.Condition {
	text := fmt.Sprintf("RoutingPolicy %s, which is older, is in use for the pool %s. Delete one of the two, or let one target another pool.",
		older.Name, policy.Spec.TargetRef.Name)
	list := []metav1.Condition{
		condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reasonConflicted, text),
		condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonConflicted, text),
	}
	for i := range list {
		list[i].ObservedGeneration = policy.Generation
		list[i].LastTransitionTime = metav1.NewTime(now)
	}
	return list
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: bounded(message)}
}

// bounded cuts a message that is too long, between two characters.
func bounded(text string) string {
	const dots = "..."
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage - len(dots)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + dots
}

// problems makes one condition of a list that is not empty: the reason of the first,
// and what all of them say.
func problems(kind string, list []Problem) metav1.Condition {
	const most = 10
	var b strings.Builder
	for i, p := range list {
		if i == most {
			fmt.Fprintf(&b, " And %d more.", len(list)-most)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(sentence(p.Message))
	}
	return condition(kind, metav1.ConditionFalse, list[0].Reason, b.String())
}

// sentence makes a message start and end like one. Names of labels, fields and users
// stay as they are.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if word, _, _ := strings.Cut(text, " "); size > 0 && !strings.ContainsAny(word, "./:") {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

func (f *facts) refs() metav1.Condition {
	const kind = v1alpha1.ConditionResolvedRefs
	list := slices.Clone(f.view.Refs)
	for _, err := range f.obs.MissingFiles {
		list = append(list, fileProblem(err))
	}
	switch {
	case len(list) > 0:
		return problems(kind, list)
	case !f.view.Synced:
		return condition(kind, metav1.ConditionUnknown, reasonNotSynced, "The pool was not read yet.")
	}
	return condition(kind, metav1.ConditionTrue, reasonResolvedRefs, "All that the policy and its pool refer to is there.")
}

// fileProblem is what is wrong with a file that the spec names.
func fileProblem(err error) Problem {
	text := "spec." + strings.TrimPrefix(err.Error(), "spec.")
	if strings.Contains(text, "no such file") { // an error of a field, which wraps none
		return Problem{reasonFileNotFound, text + ": the Secret that is mounted there lacks this key, or does not exist. Create it; one that only a policy names must be listed in extraSecrets of the chart"}
	}
	return Problem{reasonFileUnusable, text}
}

func (f *facts) roles() metav1.Condition {
	const kind = v1alpha1.ConditionRolesResolved
	switch {
	case len(f.view.Roles) > 0:
		return problems(kind, f.view.Roles)
	case !f.view.Synced || f.view.Snapshot == nil:
		return condition(kind, metav1.ConditionUnknown, reasonNotSynced, "The pods of the pool were not read yet.")
	case f.workers() == 0:
		return condition(kind, metav1.ConditionFalse, reasonNoReadyPods, "The pool has no ready worker. Check its selector, and why its pods are not ready.")
	}
	return condition(kind, metav1.ConditionTrue, reasonRoles, "Every ready worker has a role: "+census(f.view.Snapshot)+".")
}

func (f *facts) workers() int {
	if f.view.Snapshot == nil {
		return 0
	}
	return len(f.view.Snapshot.Workers)
}

// census counts the workers per role, such as "4 prefill, 8 decode".
func census(s *fleet.Snapshot) string {
	var parts []string
	for _, r := range []struct {
		role fleet.Role
		name string
	}{{fleet.Prefill, "prefill"}, {fleet.Decode, "decode"}, {fleet.Aggregated, "aggregated"}} {
		if n := s.Count(r.role); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, r.name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func (f *facts) eventPlane() metav1.Condition {
	status, reason, message := f.events()
	return condition(v1alpha1.ConditionEventPlaneHealthy, status, reason, message)
}

func (f *facts) events() (metav1.ConditionStatus, string, string) {
	e := &f.obs.Events
	switch {
	case e.Disabled:
		return metav1.ConditionFalse, reasonDisabled, f.whyDisabled()
	case e.NoServer && f.pol.Accepted == metav1.ConditionUnknown:
		return metav1.ConditionUnknown, reasonApplying, "The policy is being read, or taken into use."
	case e.NoServer:
		return metav1.ConditionFalse, reasonNoServer, "Neither a RoutingPolicy nor the configuration file of the picker names a NATS server. Set spec.eventPlane.nats.url; to do without events set spec.cost.useKVEvents: false."
	case !e.Connected && (e.LastError != "" || e.Warming == ""):
		return metav1.ConditionFalse, reasonDisconnected, f.disconnected()
	case e.Warming != "":
		return metav1.ConditionUnknown, reasonWarmingUp, "A new picker learns what the workers hold. It waits for: " + e.Warming + "."
	case f.strange():
		return metav1.ConditionFalse, reasonUnknownEvents, f.fromStrangers()
	case f.now.ours() > 0:
		return metav1.ConditionTrue, reasonFlowing, "KV events of the workers arrive."
	case f.silent():
		return metav1.ConditionFalse, reasonNoEvents, f.noEvents()
	}
	return metav1.ConditionTrue, reasonConnected, "Connected. No event arrived in the last minutes, and none was needed."
}

// whyDisabled says which field of the spec asks for no KV events.
func (f *facts) whyDisabled() string {
	field := "eventPlane.disabled"
	switch s := f.pol.Spec; {
	case s == nil:
	case s.Cost.LoadOnly():
		return "Requests are routed by load alone, as cost.overlapScoreCredit: 0 of the policy asks. No KV events are read."
	case !s.EventPlane.Disabled:
		field = "cost.useKVEvents: false"
	}
	return "No KV events are read, as " + field + " of the policy asks. A worker is taken to hold the prompts that were sent to it."
}

func (f *facts) disconnected() string {
	why := f.obs.Events.LastError
	if why == "" {
		why = "no connection yet"
	}
	return fmt.Sprintf("No connection to NATS: %s. Check spec.eventPlane.nats.url, its credentials and TLS, and that a NetworkPolicy lets the picker reach it. Prefixes that were learnt before still count.",
		strings.TrimSuffix(why, "."))
}

// strange says whether all events come from workers that are not in the pool, though
// those of the pool should have come. A pool that is idle may well hear only others.
func (f *facts) strange() bool {
	return f.now.ours() == 0 && f.now.StrangerEvents > somePrompts && f.eventsDue()
}

func (f *facts) fromStrangers() string {
	return fmt.Sprintf("All %d KV events of the last %s came from workers that are not in the pool. "+
		"Check that the workers run with Kubernetes discovery (DYN_DISCOVERY_BACKEND=kubernetes), whose ids are made from the names of pods; "+
		"that discovery.kubernetes.workerIdentity is their DYN_KUBE_DISCOVERY_MODE; that eventPlane.nats.namespace is this deployment's; "+
		"and that the pool's selector matches them.", f.now.StrangerEvents, f.now.span())
}

// silent says whether events should have come and none did: prompts had blocks that
// no worker held. Prompts that all workers know already make no event.
func (f *facts) silent() bool {
	return f.past.ours() == 0 && f.now.ours() == 0 && f.eventsDue()
}

// eventsDue says whether requests made blocks that no worker held, of which the
// workers should have told.
func (f *facts) eventsDue() bool {
	p := &f.past
	return p.Known > somePrompts && p.Total-min(p.Total, p.Best) > newBlocks && f.workers() > 0
}

func (f *facts) noEvents() string {
	where := "of all namespaces"
	if n := f.pol.namespace(); n != "" {
		where = fmt.Sprintf("of the namespace %q (eventPlane.nats.namespace)", n)
	}
	return fmt.Sprintf("%d prompts were routed, and not one KV event of %d workers arrived on NATS. Events %s are listened to. "+
		"Check that the workers publish them there: Dynamo 1.3 and later does with DYN_EVENT_PLANE=nats only; NATS_SERVER of the workers is this server; "+
		"the namespace is theirs; the engine has prefix caching and KV events on (vLLM: --enable-prefix-caching, --kv-events-config).",
		f.past.Known, f.workers(), where)
}

// namespace is the one whose events count, empty for all.
func (p *policyState) namespace() string {
	if p.Spec == nil {
		return ""
	}
	return p.Spec.EventPlane.NATS.Namespace
}

func (f *facts) prefixAware(events metav1.Condition) metav1.Condition {
	status, reason, message := f.prefixes(events)
	return condition(v1alpha1.ConditionPrefixAware, status, reason, message)
}

func (f *facts) prefixes(events metav1.Condition) (metav1.ConditionStatus, string, string) {
	const off, unknown = metav1.ConditionFalse, metav1.ConditionUnknown
	p := &f.past
	switch {
	case f.ignoresOverlap():
		return off, reasonNoCredit, "What workers hold does not count, as cost.overlapScoreCredit: 0 of the policy asks."
	case events.Reason == reasonDisabled:
		return off, reasonEventsDisabled, events.Message
	case len(f.mismatches()) > 0:
		c := problems(v1alpha1.ConditionPrefixAware, f.mismatches())
		return off, c.Reason, c.Message
	case events.Status != metav1.ConditionTrue:
		return events.Status, events.Reason, events.Message
	case p.Prompts == 0:
		return unknown, reasonNoTraffic, "No prompt was routed yet."
	case p.Found == 0 && !p.enough():
		return unknown, reasonNoTraffic, fmt.Sprintf("%d prompts were routed, too few to tell.", p.Prompts)
	case p.Prompts > somePrompts && p.Known*2 < p.Prompts:
		return off, reasonNoTokens, f.noTokens()
	case f.wrongRole():
		return off, reasonWrongRole, f.holdersDoNotPrefill()
	case p.Found == 0 && p.Total > newBlocks && f.indexed() == 0:
		return off, reasonNothingIndexed, f.nothingIndexed()
	case p.Found == 0 && p.Total > manyBlocks && p.full():
		return off, reasonNoHits, f.noHits()
	case p.Total == 0:
		return metav1.ConditionTrue, reasonPrefixAware, fmt.Sprintf("All prompts were shorter than one block (%d tokens).", f.blockSize())
	}
	return metav1.ConditionTrue, reasonPrefixAware,
		fmt.Sprintf("%s of prompt blocks were held by the picked worker, %s by the best, over the last %s%s.",
			p.hit(), p.ceiling(), p.span(), f.idle())
}

// mismatches are what workers say of themselves that keeps their prefixes from
// matching.
func (f *facts) mismatches() []Problem {
	return slices.DeleteFunc(slices.Clone(f.view.Advertised), func(p Problem) bool { return p.Reason == reasonBadMetadata })
}

// idle says that figures are not of now.
func (f *facts) idle() string {
	if f.now.Prompts == 0 {
		return " with traffic"
	}
	return ""
}

// ignoresOverlap says whether the policy asks for routing by load alone, by its cost.
func (f *facts) ignoresOverlap() bool {
	return f.pol.Spec != nil && f.pol.Spec.Cost.LoadOnly()
}

func (f *facts) blockSize() int {
	if f.pol.Spec == nil {
		return 0
	}
	return f.pol.Spec.BlockSize
}

func (f *facts) noTokens() string {
	hint := "Set tokenizer.inProcess.source to the model's files, or let the engines be asked (they need /tokenize or /v1/chat/completions/render)."
	switch {
	case f.pol.Spec != nil && f.pol.Spec.Tokenizer.Disabled:
		hint = "tokenizer.disabled is set: only prompts that are token ids already are known. Remove it."
	case f.obs.TokenizerWaits != "":
		hint = "The tokenizer waits for: " + strings.TrimSuffix(f.obs.TokenizerWaits, ".") + "."
	}
	return fmt.Sprintf("The token ids of %d of %d prompts were not known; those go where their text went before, or by load alone. %s",
		f.past.Prompts-f.past.Known, f.past.Prompts, hint)
}

func (f *facts) indexed() int {
	n := 0
	for _, blocks := range f.obs.IndexedBlocks {
		n += blocks
	}
	return n
}

// wrongRole says whether blocks are known, but only of workers that are never
// picked to prefill: their matches do not count.
func (f *facts) wrongRole() bool {
	s, held := f.view.Snapshot, &f.obs.IndexedBlocks
	if f.pol.Spec != nil && f.pol.Spec.Disaggregation.Mode == v1alpha1.DisaggregationNever {
		return false // decode workers prefill as well
	}
	return f.past.enough() && f.past.Known > 0 && s != nil && s.Count(fleet.Prefill) > 0 &&
		f.indexed() > 0 && held[fleet.Prefill]+held[fleet.Aggregated] == 0
}

func (f *facts) holdersDoNotPrefill() string {
	return fmt.Sprintf("All %d blocks in the index are held by decode workers, none by a worker that prefills, although the pool has %d: the events of prefill workers do not arrive, or roles are swapped. "+
		"Check that the labels of spec.roles.labels on each pod say what its DYN_COMPONENT does, and that the prefill workers publish KV events to the same NATS server and namespace.",
		f.indexed(), f.view.Snapshot.Count(fleet.Prefill))
}

func (f *facts) nothingIndexed() string {
	return fmt.Sprintf("KV events arrive, but the index holds no block. "+
		"Check that blockSize, %d, is the engines' block size (vLLM: --block-size), and that their prefix cache is on (--enable-prefix-caching).", f.blockSize())
}

func (f *facts) noHits() string {
	return fmt.Sprintf("The index holds %d blocks, but none of %d prompts (%d blocks) of the last %s began with one of them: the hashes differ. "+
		"Check that blockSize, %d, is the engines'; that the tokenizer and the chat template are those of the model; that cacheSalt is Ignore for Dynamo before 1.4; and that adapters lists all LoRA adapters.%s",
		f.indexed(), f.past.Known, f.past.Total, f.past.span(), f.blockSize(), f.guessed())
}

// guessed explains a hit rate that no event confirms.
func (f *facts) guessed() string {
	if f.past.Best == 0 {
		return ""
	}
	return " HIT and CEILING are what prompts sent to a worker a moment before are expected to have left there."
}

// ready sums up the conditions before it.
func (f *facts) ready(list []metav1.Condition) metav1.Condition {
	const kind = v1alpha1.ConditionReady
	asked := false
	for _, c := range list {
		switch {
		case c.Status != metav1.ConditionFalse:
		case f.asked(c):
			asked = true
		default:
			return condition(kind, metav1.ConditionFalse, c.Reason, c.Message)
		}
	}
	for _, c := range list {
		if c.Status == metav1.ConditionUnknown && needed(c.Type) {
			return condition(kind, metav1.ConditionUnknown, c.Reason, c.Message)
		}
	}
	switch {
	case asked && f.ignoresOverlap():
		return condition(kind, metav1.ConditionTrue, reasonLoadOnly, "Requests are routed by load alone, as the policy asks.")
	case asked:
		return condition(kind, metav1.ConditionTrue, reasonApproximate, "Requests are routed by what was sent where, and by load, as the policy asks.")
	}
	return condition(kind, metav1.ConditionTrue, reasonReady, "Requests are routed by what the workers hold, and by load.")
}

// needed says whether Ready waits for a condition that is not known yet.
func needed(kind string) bool {
	return kind != v1alpha1.ConditionEventPlaneHealthy && kind != v1alpha1.ConditionPrefixAware
}

// asked says whether a condition is False because the policy asks for it.
func (f *facts) asked(c metav1.Condition) bool {
	switch c.Reason {
	case reasonDisabled, reasonEventsDisabled, reasonNoCredit:
		return !needed(c.Type)
	}
	return false
}
