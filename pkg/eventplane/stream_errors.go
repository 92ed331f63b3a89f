package eventplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Reasons why JetStream does not serve. Each says what an operator can do.
var (
	errStreamOff = errors.New("JetStream is not enabled on the NATS servers or for this account; " +
		"enable it, or leave the stream out of the configuration")
	errStreamDenied = errors.New("this user may not use JetStream's API; " +
		"allow it to publish to $JS.API.> and $JS.FC.> and to subscribe to its inbox")
	errStreamOverlap = errors.New("another stream captures a part of the KV events; " +
		"let it capture all of their subjects, or none")
	errStreamTaken = errors.New("a stream of this name is there for something else; " +
		"name another one in the configuration")
	errStreamRefused = errors.New("the NATS servers refuse the stream; " +
		"fit its size and replicas to the limits of the account")
	errStreamGone = errors.New("the stream does not exist any more")
	// errStreamReset: numbers of messages mean others than before.
	errStreamReset = errors.New("the stream lost what it held and numbers its messages anew")
	// errStreamSilent: connected, and yet no word.
	errStreamSilent = errors.New("the stream does not answer")
)

var streamReasons = []error{
	errStreamOff, errStreamDenied, errStreamOverlap, errStreamTaken, errStreamRefused, errStreamGone, errStreamReset, errStreamSilent,
}

// sameReason says whether two errors have the same reason. Their texts differ in the
// names of inboxes and the like.
func sameReason(a, b error) bool {
	known := false
	for _, reason := range streamReasons {
		if errors.Is(a, reason) != errors.Is(b, reason) {
			return false
		}
		known = known || errors.Is(a, reason)
	}
	return known || a.Error() == b.Error()
}

// Codes of errors of JetStream's API that the library has no name for.
const (
	codeOverlap  jetstream.ErrorCode = 10065
	codeNoRoom   jetstream.ErrorCode = 10023
	codeNoStream jetstream.ErrorCode = 10027
	codeFull     jetstream.ErrorCode = 10077
)

var limitCodes = []jetstream.ErrorCode{codeNoRoom, codeNoStream, codeFull}

// askLimit bounds one request to JetStream's API.
const askLimit = 5 * time.Second

// violationEvery is how often a request looks whether the server refused it.
const violationEvery = 10 * time.Millisecond

// ask makes a request to JetStream's API. A server answers a request that is not
// permitted by an error of the connection alone, so one that appears meanwhile
// about the API or the inbox is taken for the answer. Neither does an answer come
// over another connection than the request went.
func ask[T any](ctx context.Context, conn *nats.Conn, request func(context.Context) (T, error)) (T, error) {
	before, connections := conn.LastError(), conn.Stats().Reconnects
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	done := make(chan struct{})
	watching := make(chan error, 1)
	go func() {
		defer close(watching)
		tick := time.NewTicker(violationEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if err := conn.LastError(); err != before && violates(err) { //nolint:errorlint // whether it is another error, of the same kind or not
				watching <- fmt.Errorf("%w: %w", errStreamDenied, err)
				cancel()
				return
			}
			if conn.Stats().Reconnects != connections {
				watching <- errors.New("the connection broke before the answer came")
				cancel()
				return
			}
		}
	}()
	answer, err := request(ctx)
	close(done)
	if refused := <-watching; err != nil && refused != nil {
		return answer, refused
	}
	return answer, reasonOf(err)
}

// violates says whether a server does not permit what a request needs.
func violates(err error) bool {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	text := strings.ToUpper(err.Error())
	return strings.Contains(text, "$JS.") || strings.Contains(text, "$O.") || strings.Contains(text, "FOR SUBSCRIPTION TO")
}

// reasonOf puts the reason that an operator knows before an error of the library.
func reasonOf(err error) error {
	api := (*jetstream.APIError)(nil)
	known := errors.As(err, &api)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: %w", errStreamOff, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errStreamGone, err)
	case known && api.ErrorCode == codeOverlap:
		return fmt.Errorf("%w: %w", errStreamOverlap, err)
	case known && (api.Code == 400 || api.Code == 500 || slices.Contains(limitCodes, api.ErrorCode)):
		return fmt.Errorf("%w: %w", errStreamRefused, err)
	}
	return err
}
