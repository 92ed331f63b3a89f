package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

func poolWithRef(ref *inferencev1.EndpointPickerRef) *inferencev1.InferencePool {
	return &inferencev1.InferencePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"},
		Spec:       inferencev1.InferencePoolSpec{EndpointPickerRef: ref},
	}
}

func pickerRef(port int) *inferencev1.EndpointPickerRef {
	ref := &inferencev1.EndpointPickerRef{Kind: "Service", Name: "picker"}
	if port > 0 {
		ref.Port = &inferencev1.Port{Number: inferencev1.PortNumber(port)}
	}
	return ref
}

func pickerService(name, protocol string) *corev1.Service {
	p := corev1.ServicePort{Name: name, Port: 9002}
	if protocol != "" {
		p.AppProtocol = &protocol
	}
	return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "metrics", Port: 9090}, p}}}
}

func TestPickerReference(t *testing.T) {
	group := inferencev1.Group("example.com")
	for name, tc := range map[string]struct {
		ref    *inferencev1.EndpointPickerRef
		reason string
	}{
		"none":        {nil, reasonPickerRefMissing},
		"other kind":  {&inferencev1.EndpointPickerRef{Kind: "Picker", Name: "picker"}, reasonPickerNotService},
		"other group": {&inferencev1.EndpointPickerRef{Group: &group, Kind: "Service", Name: "picker"}, reasonPickerNotService},
		"Service":     {pickerRef(9002), ""},
		"kind unset":  {&inferencev1.EndpointPickerRef{Name: "picker"}, ""},
	} {
		problems, look := checkPickerRef(poolWithRef(tc.ref))
		if look != (tc.reason == "") || len(problems) > 0 && problems[0].Reason != tc.reason || !look && len(problems) != 1 {
			t.Errorf("%s: look %v, problems %v, want %q", name, look, problems, tc.reason)
		}
	}
}

func TestPickerService(t *testing.T) {
	external := pickerService("grpc", "")
	external.Spec.Type = corev1.ServiceTypeExternalName
	for name, tc := range map[string]struct {
		port    int
		service *corev1.Service
		reason  string
		word    string
	}{
		"missing":             {9002, nil, reasonPickerNotFound, "ns/picker"},
		"external":            {9002, external, reasonPickerNotService, "ExternalName"},
		"port unset":          {0, pickerService("grpc", ""), reasonPickerPort, "9002 grpc"},
		"other port":          {9003, pickerService("grpc", ""), reasonPickerPort, "port 9003"},
		"no ports":            {9002, &corev1.Service{}, reasonPickerPort, "it has none"},
		"no protocol":         {9002, pickerService("", ""), reasonPickerNotHTTP2, "kubernetes.io/h2c"},
		"http name":           {9002, pickerService("http-ext-proc", ""), reasonPickerNotHTTP2, "9002"},
		"http wins over name": {9002, pickerService("grpc", "http"), reasonPickerNotHTTP2, "9002"},
		"like grpc":           {9002, pickerService("grpcx", ""), reasonPickerNotHTTP2, "9002"},
		"grpc":                {9002, pickerService("grpc", ""), "", ""},
		"grpc-ext-proc":       {9002, pickerService("grpc-ext-proc", ""), "", ""},
		"http2":               {9002, pickerService("http2", ""), "", ""},
		"http2-picker":        {9002, pickerService("http2-picker", ""), "", ""},
		"h2c":                 {9002, pickerService("picker", "kubernetes.io/h2c"), "", ""},
		"protocol grpc":       {9002, pickerService("picker", "grpc"), "", ""},
	} {
		got := checkPickerService(poolWithRef(pickerRef(tc.port)), tc.service)
		switch {
		case tc.reason == "":
			if len(got) > 0 {
				t.Errorf("%s: %v", name, got)
			}
		case len(got) != 1 || got[0].Reason != tc.reason || !strings.Contains(got[0].Message, tc.word):
			t.Errorf("%s: %v, want %s with %q", name, got, tc.reason, tc.word)
		}
	}
}

func TestPoolTarget(t *testing.T) {
	pool := poolWithRef(nil)
	if target, problems := poolTarget(pool); len(problems) != 2 || target.selector.Matches(nil) {
		t.Errorf("an empty pool: %v, selects %v", problems, target.selector)
	}
	pool.Spec.Selector.MatchLabels = map[inferencev1.LabelKey]inferencev1.LabelValue{"app": "llm"}
	pool.Spec.TargetPorts = []inferencev1.Port{{Number: 8001}, {Number: 8000}}
	target, problems := poolTarget(pool)
	if len(problems) > 0 || target.selector.String() != "app=llm" || len(target.ports) != 2 || target.ports[0] != 8001 {
		t.Errorf("target %+v, problems %v", target, problems)
	}
	pool.Spec.Selector.MatchLabels["app"] = "not a label"
	pool.Spec.TargetPorts[0].Number = 70000
	if target, problems := poolTarget(pool); len(problems) != 2 || target.selector.String() == "app=llm" || len(target.ports) != 1 {
		t.Errorf("target %+v, problems %v", target, problems)
	}
}
