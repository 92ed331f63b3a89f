package render

import (
	"context"
	"errors"
)

// What can go wrong in [Client.Tokens]. All but ErrNoEngine come wrapped with
// the engine and the circumstances.
var (
	// ErrNoEngine is that no engine is configured, or none is in the pool now.
	ErrNoEngine = errors.New("no engine to ask for token ids: configure a tokenizer URL, or wait for a worker to be ready")
	// ErrOpen is that the breakers of all engines are open after failures.
	ErrOpen = errors.New("all engines are paused after failures in a row")
	// ErrTimeout is that the deadline passed.
	ErrTimeout = errors.New("no answer within the deadline")
	// ErrRejected is that the engine refused the request: it is the request's
	// own fault, and no other engine was asked.
	ErrRejected = errors.New("the engine refused the request")
	// ErrTooLarge is a request over [Config.MaxRequestBytes]: no engine was asked.
	ErrTooLarge = errors.New("the request is too large to be sent to an engine for its token ids")
	// ErrUnsupported is that the engine has no such endpoint, or does not serve
	// the model: it answered 404, 405 or 501.
	ErrUnsupported = errors.New("the engine has no such endpoint or model")
	// ErrBadAnswer is an answer that is too large or not of the known shape.
	ErrBadAnswer = errors.New("the engine's answer cannot be used")
	// ErrUnavailable is an engine that cannot be reached, or that answered with
	// some other error status.
	ErrUnavailable = errors.New("the engine is not available")
)

// outcome is the index of a result in counters.
type outcome uint8

const (
	succeeded outcome = iota
	noEngine
	open
	timeout
	rejected
	tooLarge
	unsupported
	badAnswer
	unavailable
	canceled
	outcomes
)

var labels = [outcomes]string{
	succeeded:   "ok",
	noEngine:    "no_engine",
	open:        "breaker_open",
	timeout:     "timeout",
	rejected:    "rejected",
	tooLarge:    "too_large",
	unsupported: "unsupported",
	badAnswer:   "bad_answer",
	unavailable: "unavailable",
	canceled:    "canceled",
}

// Reason returns a short metric label for an error of [Client.Tokens]: "ok" for
// nil, "canceled" when the caller gave up.
func Reason(err error) string { return labels[outcomeOf(err)] }

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return succeeded
	case errors.Is(err, ErrNoEngine):
		return noEngine
	case errors.Is(err, ErrOpen):
		return open
	case errors.Is(err, ErrTimeout):
		return timeout
	case errors.Is(err, ErrRejected):
		return rejected
	case errors.Is(err, ErrTooLarge):
		return tooLarge
	case errors.Is(err, ErrUnsupported):
		return unsupported
	case errors.Is(err, ErrBadAnswer):
		return badAnswer
	case errors.Is(err, context.Canceled):
		return canceled
	default:
		return unavailable
	}
}
