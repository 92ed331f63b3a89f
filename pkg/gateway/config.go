package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// Names of the endpoint picker protocol (endpoint-picker.md 1.2).
const (
	destinationKey  = "x-gateway-destination-endpoint"
	servedKey       = "x-gateway-destination-endpoint-served"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	subsetNamespace = "envoy.lb.subset_hint"
	lbNamespace     = "envoy.lb"
)

// Headers of the subset test aid, see [Config.SubsetHeader].
const (
	SubsetListHeader   = "x-subset"        // becomes a list of the comma separated elements
	SubsetStringHeader = "x-subset-string" // becomes one string, as it is
)

// BodyMode is how a body is shown to the picker. The zero value is FullDuplex.
type BodyMode uint8

// Body modes (Envoy's processing_mode).
const (
	FullDuplex BodyMode = iota // chunks go to the picker, and only what it sends back goes on
	Buffered                   // the whole body in one message, at most 1 MiB
	None                       // the picker sees headers only
)

// String returns Envoy's name of the mode.
func (m BodyMode) String() string {
	switch m {
	case FullDuplex:
		return "FULL_DUPLEX_STREAMED"
	case Buffered:
		return "BUFFERED"
	case None:
		return "NONE"
	}
	return fmt.Sprintf("BodyMode(%d)", uint8(m))
}

// FollowMode is how the gateway reads the picker's choice (envoy.md section 3).
// The zero value is ByHeader.
type FollowMode uint8

// Follow modes.
const (
	ByHeader     FollowMode = iota // the header mutation; any address is dialled
	ByMetadata                     // the dynamic metadata; any address is dialled
	OverrideHost                   // header, then metadata, among Config.Workers; retries down the list
)

// Config says how a gateway listens, where the picker is and how it is asked.
type Config struct {
	Listen netip.AddrPort // where clients connect; zero means 127.0.0.1:0
	Picker netip.AddrPort // the picker's ext-proc port, gRPC without TLS; required

	RequestBodyMode  BodyMode
	ResponseBodyMode BodyMode

	Follow  FollowMode
	Workers []netip.AddrPort // OverrideHost only: the addresses it may use

	// SubsetHeader turns the request headers x-subset and x-subset-string into
	// the candidate subset hint, and removes them. A test aid. A list without
	// elements (",") arrives as an empty map: Envoy's Lua knows no empty list.
	SubsetHeader bool
	// KeepContentLength keeps content-length in full duplex mode. Without it
	// bodies go on with transfer-encoding chunked (envoy.md section 7).
	KeepContentLength bool
	// StreamIdleTimeout ends a request on which nothing moves; it is what bounds
	// a picker that never answers. Zero means 30 s.
	StreamIdleTimeout time.Duration

	// AccessLog gets one JSON object per request and line; nil for none. Requests
	// wait for a writer that blocks.
	AccessLog io.Writer
	Log       *slog.Logger // nil means discard
}

// withDefaults returns c with the zero values replaced.
func (c Config) withDefaults() Config {
	if !c.Listen.IsValid() {
		c.Listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	}
	if c.StreamIdleTimeout == 0 {
		c.StreamIdleTimeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns everything that is wrong with c. Zero values that have a
// default are right.
func (c Config) Validate() error {
	var errs []error
	if !c.Picker.IsValid() || c.Picker.Port() == 0 {
		errs = append(errs, errors.New("picker: an address with a port is required"))
	}
	if c.RequestBodyMode > None {
		errs = append(errs, fmt.Errorf("request body mode: unknown value %d", c.RequestBodyMode))
	}
	if c.ResponseBodyMode > None {
		errs = append(errs, fmt.Errorf("response body mode: unknown value %d", c.ResponseBodyMode))
	}
	switch c.Follow {
	case ByHeader, ByMetadata:
		if len(c.Workers) > 0 {
			errs = append(errs, errors.New("workers: only used by follow mode OverrideHost"))
		}
	case OverrideHost:
		if len(c.Workers) == 0 {
			errs = append(errs, errors.New("workers: follow mode OverrideHost needs at least one"))
		}
		if slices.ContainsFunc(c.Workers, func(a netip.AddrPort) bool { return !a.IsValid() || a.Port() == 0 }) {
			errs = append(errs, errors.New("workers: every worker needs an address and a port"))
		}
	default:
		errs = append(errs, fmt.Errorf("follow mode: unknown value %d", c.Follow))
	}
	if c.StreamIdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("stream idle timeout: %s is negative", c.StreamIdleTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gateway configuration: %w", err)
	}
	return nil
}
