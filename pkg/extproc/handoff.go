package extproc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// HandoffValue is what a handoff header says.
type HandoffValue uint8

// Values of handoff headers. Those of the prefill worker are sent only with a
// disaggregated decision.
const (
	PrefillEndpoint   HandoffValue = iota + 1 // ip:port
	PrefillInstanceID                         // worker id, decimal
	PrefillRank                               // data-parallel rank, decimal
	DecodeEndpoint
	DecodeInstanceID
	DecodeRank
	RoutingMode // "disaggregated" or "aggregated"
	RequestID   // a UUID that is new for every request
)

// HandoffHeader is one header of the handoff. Name is lower case.
type HandoffHeader struct {
	Name  string
	Value HandoffValue
}

// Handoff is the set of headers that tell the decode worker about the decision.
type Handoff []HandoffHeader

// DefaultHandoff names the prefill worker the way llm-d's sidecar reads it
// (engines.md 3.2).
func DefaultHandoff() Handoff {
	return Handoff{{"x-prefiller-host-port", PrefillEndpoint}}
}

// DynamoHandoff names both workers, in both generations of Dynamo's headers
// (dynamo.md 5.2; dynamo-live.md section 4).
func DynamoHandoff() Handoff {
	return Handoff{
		{"x-worker-instance-id", DecodeInstanceID},
		{"x-dynamo-worker-instance-id", DecodeInstanceID},
		{"x-dp-rank", DecodeRank},
		{"x-dynamo-dp-rank", DecodeRank},
		{"x-prefill-instance-id", PrefillInstanceID},
		{"x-dynamo-prefill-instance-id", PrefillInstanceID},
		{"x-prefill-dp-rank", PrefillRank},
		{"x-dynamo-prefill-dp-rank", PrefillRank},
		{"x-dynamo-routing-mode", RoutingMode},
		{"x-dynamo-request-id", RequestID},
	}
}

// Validate reports a header that cannot be used.
func (h Handoff) Validate() error {
	seen := map[string]bool{}
	for _, header := range h {
		switch {
		case header.Name == "" || header.Name != strings.ToLower(header.Name) || strings.ContainsAny(header.Name, ": \t\r\n"):
			return fmt.Errorf("handoff header %q is not a lower-case header name", header.Name)
		case header.Name == destinationHeader:
			return fmt.Errorf("handoff header %q is the destination itself; choose another name", header.Name)
		case seen[header.Name]:
			return fmt.Errorf("handoff header %q is given twice", header.Name)
		case header.Value < PrefillEndpoint || header.Value > RequestID:
			return fmt.Errorf("handoff header %q has an unknown value", header.Name)
		}
		seen[header.Name] = true
	}
	return nil
}

// Names says whether some header carries one of the given values.
func (h Handoff) Names(values ...HandoffValue) bool {
	return slices.ContainsFunc(h, func(header HandoffHeader) bool { return slices.Contains(values, header.Value) })
}

// appendTo appends the headers of a decision to set.
func (h Handoff) appendTo(set []*corev3.HeaderValueOption, d *pick.Decision, requestID func() string) []*corev3.HeaderValueOption {
	split := d.Mode == pick.Disaggregated
	for _, header := range h {
		var value string
		switch header.Value {
		case PrefillEndpoint, PrefillInstanceID, PrefillRank:
			if !split {
				continue
			}
			value = workerValue(header.Value, &d.Prefill)
		case DecodeEndpoint, DecodeInstanceID, DecodeRank:
			value = workerValue(header.Value-DecodeEndpoint+PrefillEndpoint, &d.Decode)
		case RoutingMode:
			value = "aggregated"
			if split {
				value = "disaggregated"
			}
		case RequestID:
			value = requestID()
		}
		set = append(set, overwrite(header.Name, value))
	}
	return set
}

// workerValue is what a worker's header says; v is one of the prefill values.
func workerValue(v HandoffValue, w *fleet.Worker) string {
	switch v {
	case PrefillEndpoint:
		return w.Endpoint.String()
	case PrefillInstanceID:
		return strconv.FormatUint(w.ID, 10)
	default:
		return strconv.FormatUint(uint64(w.Rank), 10)
	}
}

// RoutingHeaders are the request headers that steer a request past the picker: no
// client may send them. Whatever the handoff, all of them are removed, since sidecars
// trust them (dynamo.md 5.2; engines.md 3.2; endpoint-picker.md 1.2).
func RoutingHeaders(h Handoff) []string {
	names := []string{
		destinationHeader, subsetHeader, "x-gateway-destination-endpoint-served", "x-gateway-destination-endpoint-scores",
		"x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port", "x-data-parallel-host-port",
		"x-data-parallel-rank", "x-bypass-remote-prefill",
	}
	for _, header := range slices.Concat(DynamoHandoff(), h) {
		names = append(names, header.Name)
	}
	return names
}

func routingHeaders(h Handoff) map[string]bool {
	m := map[string]bool{}
	for _, name := range RoutingHeaders(h) {
		m[name] = true
	}
	return m
}
