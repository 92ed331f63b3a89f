package scrape

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Result is how a scrape ended.
type Result uint8

// Results.
const (
	OK          Result = iota
	NoFigures          // a page without any figure that counts
	Unreachable        // no connection, or it broke
	TimedOut           // no whole page within the deadline
	BadStatus          // another status than 200
	TooLarge           // a page that is over the limit
	Unreadable         // an encoding that cannot be read
	NumResults
)

// String returns the result as metrics name it.
func (r Result) String() string {
	return [NumResults]string{"ok", "no_figures", "unreachable", "timeout", "bad_status", "too_large", "unreadable"}[r]
}

// advice says what to do about it.
func (r Result) advice() string {
	switch r {
	case NoFigures:
		return "the page has none of the metrics of vLLM, SGLang, TensorRT-LLM or Dynamo workers; if another port of the workers serves them, set spec.engineMetrics.port"
	case BadStatus:
		return "see that the engines serve metrics at spec.engineMetrics.path (SGLang: --enable-metrics), or on which port (Dynamo: DYN_SYSTEM_PORT) and set spec.engineMetrics.port"
	case Unreachable:
		return "see that spec.engineMetrics.port and scheme fit the workers and no network policy is in the way"
	case TimedOut:
		return "see whether the engines are overloaded, or a network policy drops packets to the port of the metrics"
	case TooLarge, Unreadable:
		return "see that spec.engineMetrics.port and path are those of an engine's metrics"
	case OK, NumResults:
	}
	return ""
}

// failure is an error that has a result of its own.
type failure struct {
	result Result
	text   string
}

func (f *failure) Error() string { return f.text }

var (
	errTooLarge  = &failure{TooLarge, fmt.Sprintf("the page is larger than %d MiB", maxPage>>20)}
	errNoFigures = &failure{NoFigures, "the page has no figures of an engine"}
)

// resultOf returns the result of an error.
func resultOf(err error) Result {
	if err == nil {
		return OK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.result
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	return Unreachable
}
