package recovery

import (
	"fmt"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Kind is what a worker answered.
type Kind uint8

// Kinds of answers.
const (
	Events       Kind = iota + 1 // the events from Request.From on, with their own ids
	TreeDump                     // all that the rank holds, as events whose ids mean nothing
	TooNew                       // Request.From is beyond the newest event
	InvalidRange                 // Request.To is before Request.From
)

// String returns the kind's name as Dynamo writes it on the wire.
func (k Kind) String() string {
	switch k {
	case Events:
		return "Events"
	case TreeDump:
		return "TreeDump"
	case TooNew:
		return "TooNew"
	case InvalidRange:
		return "InvalidRange"
	}
	return "unknown"
}

// Answer is a worker's answer. Nothing in it is shared: it is the caller's.
type Answer struct {
	Kind Kind

	// Of Events and TreeDump. All are of the worker that was asked, in the order
	// to apply them. A dump replaces all that is known of the rank: its ids count
	// from 0 and say nothing, and the next live event is LastEventID+1. Events may
	// start with a Cleared one later than Request.From, which makes those before it
	// superfluous.
	Events []kvevent.Event
	// LastEventID is the newest event's id that the answer covers; of TooNew, the
	// newest that there is.
	LastEventID uint64

	// From and To are the range of TooNew and InvalidRange as the worker saw it.
	From, To *uint64

	Bytes         int64  // of the answer as it came, frames and all
	UnknownFields uint64 // fields of events that were skipped
	UnknownTiers  uint64 // events of tier kvevent.NumTiers
}

// RemoteError is a worker's word that it could not answer.
type RemoteError struct {
	Reason  string // Error, TreeDumpFailed, or Refused (before there was an answer)
	Message string // the worker's own words, at most some hundred bytes of them
}

// Error returns the reason and the worker's words.
func (e *RemoteError) Error() string { return fmt.Sprintf("worker says %s: %q", e.Reason, e.Message) }

// maxWords bounds what is kept of a worker's own words.
const maxWords = 512

func remoteError(reason, message string) *RemoteError {
	if len(message) > maxWords {
		message = message[:maxWords] + "…"
	}
	return &RemoteError{Reason: reason, Message: message}
}
