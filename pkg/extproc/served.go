package extproc

import (
	"net/netip"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// Where a gateway says which endpoint served a request (endpoint-picker.md 1.2;
// envoy.md section 6).
const (
	servedKey          = "x-gateway-destination-endpoint-served"
	attributesSpace    = "envoy.filters.http.ext_proc"
	upstreamAttribute  = "upstream.address"
	servedSilence      = time.Minute // between two lines of the log
	servedElsewhereMsg = "the gateway sent a request to another endpoint than the picked one; more within a minute are only counted"
)

// elsewhere counts requests that were served by an endpoint that was not picked:
// the gateway tried the picked one in vain, or does not follow the picker.
type elsewhere struct {
	n      atomic.Uint64
	silent atomic.Int64 // until when nothing is logged, Unix nanoseconds
}

// noteServed compares the endpoint that served a request with the picked one.
// Many gateways say nothing, and answer by themselves where nobody serves: that
// counts for nothing.
func (st *stream) noteServed(msg *extprocv3.ProcessingRequest) {
	picked := st.decision.Decode.Endpoint
	if st.phase != routedPhase || !picked.IsValid() {
		return
	}
	served, ok := servedBy(msg)
	if !ok || served == picked {
		return
	}
	s := st.srv
	s.elsewhere.n.Add(1)
	now := s.cfg.Now()
	until := s.elsewhere.silent.Load()
	if now.UnixNano() >= until && s.elsewhere.silent.CompareAndSwap(until, now.Add(servedSilence).UnixNano()) {
		s.cfg.Log.Warn(servedElsewhereMsg, "picked", picked.String(), "served", served.String(), "worker", st.decision.Decode.Name)
	}
}

// servedBy is the endpoint that a gateway names. What it writes with the choice
// of its load balancer in mind comes first.
func servedBy(msg *extprocv3.ProcessingRequest) (netip.AddrPort, bool) {
	text := msg.GetMetadataContext().GetFilterMetadata()[destinationSpace].GetFields()[servedKey].GetStringValue()
	if text == "" {
		text = msg.GetAttributes()[attributesSpace].GetFields()[upstreamAttribute].GetStringValue()
	}
	if text == "" {
		return netip.AddrPort{}, false
	}
	served, err := netip.ParseAddrPort(text)
	return netip.AddrPortFrom(served.Addr().Unmap(), served.Port()), err == nil
}
