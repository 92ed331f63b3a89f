package app

import (
	"reflect"
	"testing"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/admission"
	"github.com/warmpath/warmpath/pkg/extproc"
)

// TestAdmissionConversion: what a policy says of waiting becomes what ext-proc does,
// and every default can be taken into use.
func TestAdmissionConversion(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.AdmissionSpec
		want extproc.Routing
	}{
		"defaults": {
			want: extproc.Routing{
				Queueing:   extproc.Queueing{MaxWait: 5 * time.Second, MaxRequests: 1000},
				Objectives: map[string]int{},
			},
		},
		"all": {
			spec: v1alpha1.AdmissionSpec{
				Queue: v1alpha1.QueueSpec{
					MaxWait: &v1alpha1.Duration{Duration: time.Minute}, MaxRequests: 7, Policy: v1alpha1.QueueWSPT,
				},
				Objectives:        []v1alpha1.ObjectiveSpec{{Name: "a", Priority: 3}, {Name: "b", Priority: -1}, {Name: "c"}},
				FallbackEndpoints: 2,
			},
			want: extproc.Routing{
				Queueing:   extproc.Queueing{MaxWait: time.Minute, MaxRequests: 7, Policy: admission.WSPT},
				Objectives: map[string]int{"a": 3, "b": -1, "c": 0},
				Fallback:   2,
			},
		},
		"off": {
			spec: v1alpha1.AdmissionSpec{Queue: v1alpha1.QueueSpec{MaxWait: &v1alpha1.Duration{}}},
			want: extproc.Routing{Queueing: extproc.Queueing{MaxRequests: 1000}, Objectives: map[string]int{}},
		},
	} {
		spec := v1alpha1.RoutingPolicySpec{Admission: tc.spec}
		spec.Default()
		var got extproc.Routing
		admit(&got, &spec.Admission)
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if err := got.Queueing.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v1alpha1.MaxQueueRequests != admission.MaxRequests || v1alpha1.MaxFallbackEndpoints != extproc.MaxFallback {
		t.Error("a policy may ask for more than there can be")
	}
}

// TestRequestsWaitByDefault: with a bound, a request waits for the one that is under
// way, and a policy that lets none wait refuses it.
func TestRequestsWaitByDefault(t *testing.T) {
	r := start(t, noText+noEvents+"\nadmission: {activePrefillTokensThreshold: 1}\n", aggregated)
	r.waitReady(t)
	c := r.call(t)
	_, body := tokens(1, 8)
	_, other := tokens(100, 8)
	first := c.begin(completions)
	first.routed(body)
	second, served := c.begin(completions), make(chan map[string]string, 1)
	go func() { served <- second.routed(other) }()
	r.waitMetric(t, "warmpath_queue_requests", 1)
	first.finish()
	if set := <-served; set["x-gateway-destination-endpoint"] != "10.0.3.1:8000" {
		t.Errorf("routed: %v", set)
	}
	r.apply(t, func(p *v1alpha1.RoutingPolicySpec) { p.Admission.Queue.MaxWait = &v1alpha1.Duration{} })
	if set := r.ask(t, completions, body); set != nil {
		t.Errorf("routed to a busy worker: %v", set)
	}
	r.waitMetric(t, `warmpath_queue_results_total{result="not_queued"}`, 1)
	second.finish()
}
