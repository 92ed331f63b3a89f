package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

// kindService is the kind of a pool's picker where it names none.
const kindService = "Service"

// checkPickerRef checks what of a pool's reference to its picker can be seen
// without looking the Service up. look says whether there is one to look up.
func checkPickerRef(pool *inferencev1.InferencePool) (problems []Problem, look bool) {
	where := pool.Namespace + "/" + pool.Name
	ref := pool.Spec.EndpointPickerRef
	if ref == nil {
		return []Problem{{reasonPickerRefMissing, fmt.Sprintf(
			"InferencePool %s has no spec.endpointPickerRef, so that no gateway asks this picker; set it to the picker's Service and its ext-proc port", where)}}, false
	}
	group, kind := "", string(ref.Kind)
	if ref.Group != nil {
		group = string(*ref.Group)
	}
	if group != "" || kind != "" && kind != kindService {
		return []Problem{{reasonPickerNotService, fmt.Sprintf(
			"spec.endpointPickerRef of InferencePool %s names a %s, and no Service; name the picker's Service", where, strings.Trim(kind+"."+group, "."))}}, false
	}
	return nil, true
}

// checkPickerService checks the Service that a pool names as its picker. It is nil
// when there is none of that name.
func checkPickerService(pool *inferencev1.InferencePool, s *corev1.Service) []Problem {
	ref, where := pool.Spec.EndpointPickerRef, pool.Namespace+"/"+pool.Name
	service := fmt.Sprintf("Service %s/%s", pool.Namespace, ref.Name)
	if s == nil {
		return []Problem{{reasonPickerNotFound, fmt.Sprintf(
			"spec.endpointPickerRef of InferencePool %s names %s, which does not exist; correct the name, or install the picker's Service", where, service)}}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return []Problem{{reasonPickerNotService, service + " is of type ExternalName, which gateways do not take for a picker; make it a ClusterIP Service"}}
	}
	if ref.Port == nil {
		return []Problem{{reasonPickerPort, fmt.Sprintf(
			"spec.endpointPickerRef of InferencePool %s names no port; set port.number to the ext-proc port of %s (%s)", where, service, portList(s))}}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Port != int32(ref.Port.Number) {
			continue
		}
		if speaksHTTP2(p) {
			return nil
		}
		return []Problem{{reasonPickerNotHTTP2, fmt.Sprintf(
			"gateways will not speak HTTP/2 to port %d of %s, so that every request fails; set appProtocol: kubernetes.io/h2c on the port, or name it grpc-ext-proc", p.Port, service)}}
	}
	return []Problem{{reasonPickerPort, fmt.Sprintf(
		"spec.endpointPickerRef of InferencePool %s names port %d, which %s does not have (%s); use its ext-proc port", where, ref.Port.Number, service, portList(s))}}
}

// speaksHTTP2 says whether gateways take a port for one of HTTP/2: by appProtocol
// or, without one, by the name (gateway-live.md section 4).
func speaksHTTP2(p *corev1.ServicePort) bool {
	word := p.Name
	if p.AppProtocol != nil {
		word = strings.ToLower(*p.AppProtocol)
		if word == "kubernetes.io/h2c" {
			return true
		}
	}
	protocol, _, _ := strings.Cut(word, "-")
	return protocol == "grpc" || protocol == "http2"
}

func portList(s *corev1.Service) string {
	var list []string
	for i := range s.Spec.Ports {
		list = append(list, fmt.Sprintf("%d %s", s.Spec.Ports[i].Port, s.Spec.Ports[i].Name))
	}
	if len(list) == 0 {
		return "it has none"
	}
	return "it has " + names(list)
}
