package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// streamer is a worker that answers a request for a stream with one event per
// turn, and all others at once.
func streamer(turn <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-stream") == "" {
			_, _ = io.WriteString(w, "{}") // the client is gone when this fails
			return
		}
		eventStream(w)
		for i := 0; ; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			flush(w)
			select {
			case _, more := <-turn:
				if !more {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}
}

// openStream is a client that reads an event stream.
type openStream struct {
	t     *testing.T
	lines *bufio.Reader
	next  int
	turn  chan struct{}
}

// stream opens a stream and reads its first event.
func (s *stack) stream(turn chan struct{}) *openStream {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/completions", strings.NewReader(completion(tokens(1, 100))))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("x-stream", "yes")
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	o := &openStream{t: s.t, lines: bufio.NewReader(resp.Body), turn: turn}
	o.read()
	return o
}

// read reads the event that must come next.
func (o *openStream) read() {
	o.t.Helper()
	event, err := o.lines.ReadString('\n')
	blank, err2 := o.lines.ReadString('\n')
	if event != fmt.Sprintf("data: %d\n", o.next) || blank != "\n" || err != nil || err2 != nil {
		o.t.Fatalf("event %d of a stream: %q, %q, %v, %v", o.next, event, blank, err, err2)
	}
	o.next++
}

// more has the worker send another event, and reads it.
func (o *openStream) more() {
	o.t.Helper()
	o.turn <- struct{}{}
	o.read()
}

// end has the worker end, which must end the stream well.
func (o *openStream) end() {
	o.t.Helper()
	close(o.turn)
	if rest, err := io.ReadAll(o.lines); len(rest) != 0 || err != nil {
		o.t.Errorf("a stream ends with %q, %v", rest, err)
	}
}

// prefillHeader sends a request and says which header named the prefill worker.
func (d *deployment) prefillHeader(decode *recorder, prefill string) string {
	d.t.Helper()
	d.complete(tokens(1, 40))
	found := ""
	for name, values := range decode.last(d.t).header {
		if strings.HasPrefix(name, "X-") && len(values) == 1 && values[0] == prefill {
			found += strings.ToLower(name)
		}
	}
	return found
}

// TestClusterPolicyChangesLive makes, changes, spoils and deletes the policy while
// requests run and a stream is open.
func TestClusterPolicyChangesLive(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t))
	turn := make(chan struct{})
	decode := newRecorderAt(t, "decode-0", fleet.Decode, []string{d.addr(d.ip(1))}, streamer(turn))
	prefill := newRecorderAt(t, "prefill-0", fleet.Prefill, []string{d.addr(d.ip(2))}, nil)
	d.createPod("decode-0", labels(fleet.Decode), d.ip(1))
	d.createPod("prefill-0", labels(fleet.Prefill), d.ip(2))
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	load := d.traffic(2)
	stream := d.stream(turn)

	await := func(header string) {
		t.Helper()
		eventually(t, "the prefill worker is named in "+header, func() bool { return d.prefillHeader(decode, prefill.addr()) == header })
		load.settle(t)
		stream.more()
	}
	const usual = "x-prefiller-host-port"
	await(usual) // by the configuration file

	named := func(header string) object {
		return object{"handoff": object{"headers": []any{object{"name": header, "value": "PrefillEndpoint"}}}}
	}
	d.policy(named("x-first"))
	await("x-first")
	d.awaitCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	d.policy(named("x-second"))
	await("x-second")

	// The API server takes a zone that has the form of one. It is told that it is not.
	bad := named("x-third")
	bad["tokenizer"] = object{"inProcess": object{"chatTemplate": object{"timeZone": "Nowhere/Land"}}}
	d.policy(bad)
	message := d.awaitCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid")
	for _, part := range []string{"spec.tokenizer.inProcess.chatTemplate.timeZone", "Nowhere/Land", "Europe/Zurich", "RoutingPolicy llm stays in use"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not say %q: %s", part, message)
		}
	}
	d.awaitColumns(map[string]string{"READY": "False"})
	for range 5 {
		if header := d.prefillHeader(decode, prefill.addr()); header != "x-second" {
			t.Errorf("under a bad policy the prefill worker is named in %q, want x-second", header)
		}
	}
	d.policy(named("x-third"))
	await("x-third")
	d.awaitCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")

	d.deletePolicy()
	await(usual)
	stream.end()
	load.stop(t)
	d.idle()
	if n := len(d.picker.logged("serving")); n != 1 || !d.picker.running() {
		t.Errorf("the picker started %d times, running is %t", n, d.picker.running())
	}
}

// TestClusterPolicyTurnsAffinityOff sets the credit for what workers hold to
// nothing, and gives it back.
func TestClusterPolicyTurnsAffinityOff(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t))
	agg, _ := d.pods(false)
	aware := object{"eventPlane": object{"speculationTTL": "0s"}}
	d.policy(aware)
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	prompt := tokens(1, 20*blockSize)
	holder := d.sticks(prompt, agg).prefill()

	load := d.traffic(1)
	d.policy(object{"eventPlane": object{"speculationTTL": "0s"}, "cost": object{"overlapScoreCredit": 0}})
	d.awaitCondition(v1alpha1.ConditionPrefixAware, metav1.ConditionFalse, "OverlapIgnored")
	d.awaitCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, "LoadOnly")
	load.stop(t)
	// Another worker is as good now. It gets the prompt by chance, sooner or later.
	eventually(t, "another worker gets the prompt", func() bool {
		d.idle()
		return d.complete(prompt).prefill() != holder
	})
	load = d.traffic(1)
	d.policy(aware)
	// Nothing was heard meanwhile, and workers do not tell again: what is stored from
	// now on counts.
	n := 1000
	eventually(t, "new prompts make it aware again", func() bool {
		n++
		d.complete(tokens(n, 20*blockSize))
		p := d.livePolicy()
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPrefixAware)
		return c != nil && c.Reason == "PrefixAware" && c.ObservedGeneration == p.Generation
	})
	load.stop(t)
	d.sticks(tokens(2, 20*blockSize), agg)
}

// TestClusterPolicyMovesNATS has the policy name the NATS server on which the
// workers publish, instead of the one in the configuration file.
func TestClusterPolicyMovesNATS(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t))
	other := startNATS(t, server.RANDOM_PORT)
	fileURL := d.natsURL
	d.natsURL = other.ClientURL() // the workers'
	agg, _ := d.pods(false)
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	eventually(t, "the picker is connected to the server of the file", func() bool { return d.bus.NumClients() == 1 })
	d.complete(tokens(1, 20*blockSize))
	d.idle()

	load := d.traffic(2)
	spec := object{"eventPlane": object{"speculationTTL": "0s", "nats": object{"url": other.ClientURL(), "namespace": namespace}}}
	d.policy(spec)
	d.awaitCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	eventually(t, "the picker has left the server of the file", func() bool { return d.bus.NumClients() == 0 })
	eventually(t, "the picker is a client of the other server, beside the workers", func() bool { return other.NumClients() == 1+len(agg) })
	load.stop(t)
	d.sticks(tokens(2, 20*blockSize), agg)
	d.awaitCondition(v1alpha1.ConditionEventPlaneHealthy, metav1.ConditionTrue, "Flowing")

	load = d.traffic(2)
	d.deletePolicy()
	eventually(t, "the picker is back at the server of the file, "+fileURL, func() bool { return d.bus.NumClients() == 1 && other.NumClients() == len(agg) })
	load.stop(t)
	// What workers hold is not known any more, since none of them publishes here.
	if held := d.index(); len(held) != 0 {
		t.Errorf("the index has blocks of a server that was left: %v", held)
	}
}
