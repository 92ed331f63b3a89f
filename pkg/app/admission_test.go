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
