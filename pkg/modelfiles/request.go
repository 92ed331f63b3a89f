package modelfiles

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// maxHops bounds the redirects of one request.
const maxHops = 8

// What a hub says in headers of its own answers, not those of its storage.
const (
	headerCommit     = "X-Repo-Commit"
	headerLinkedETag = "X-Linked-Etag"
	headerLinkedSize = "X-Linked-Size"
	headerErrorCode  = "X-Error-Code"
)

// requester sends requests to one server, home. Elsewhere it goes only where a
// hub sends it, and without the token.
type requester struct {
	net Net
	// Not a client: it follows redirects with more than is wanted, and its errors
	// hold addresses.
	transport http.RoundTripper
	home      *url.URL
	token     string // empty: none
	follow    bool   // redirects are followed, else they are an error
}

// newRequester returns a requester, and what closes its connections.
func newRequester(n Net, home *url.URL, token string, follow bool) (*requester, func()) {
	transport, done := n.Transport, func() {}
	if transport == nil {
		own := &http.Transport{
			DisableCompression:  true, // sizes and checksums are of the file itself
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: n.Stall,
		}
		if follow { // a hub: workers are near
			own.Proxy = http.ProxyFromEnvironment
		}
		transport, done = own, own.CloseIdleConnections
	}
	return &requester{net: n, transport: transport, home: home, token: token, follow: follow}, done
}

// reply is an answer after redirects. Its body must be closed.
type reply struct {
	*http.Response
	atHome bool        // the answer is home's own
	said   http.Header // the hub's own headers: of each the first value seen at home
	alive  func()      // to be called when bytes have come
	stop   func()
	why    func(error) error // what is behind an error of reading
}

// close ends the reply and the watch over it.
func (r *reply) close() {
	_ = r.Body.Close() // what was read is checked otherwise
	r.stop()
}

// send sends a request and follows redirects. Bytes before from are not wanted.
// An error is a network's, or a redirect that leads nowhere; what a status means
// is up to the caller.
func (r *requester) send(ctx context.Context, method string, target *url.URL, from int) (*reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	var stalled atomic.Bool
	watch := time.AfterFunc(r.net.Stall, func() {
		stalled.Store(true)
		cancel()
	})
	answer := &reply{
		said:  http.Header{},
		alive: func() { watch.Reset(r.net.Stall) },
		stop: func() {
			watch.Stop()
			cancel()
		},
		why: func(err error) error {
			if stalled.Load() {
				return errors.New("nothing came for " + r.net.Stall.String())
			}
			return bare(err)
		},
	}
	// Once another server was asked nothing is home's own any more.
	token := r.token
	answer.atHome = true
	for range maxHops {
		if answer.atHome = answer.atHome && sameServer(target, r.home); !answer.atHome {
			token = ""
		}
		resp, err := r.hop(ctx, method, target, token, from)
		if err != nil {
			answer.stop()
			return nil, noAnswer(answer.why(err))
		}
		answer.alive()
		answer.Response = resp
		if answer.atHome {
			answer.listen(resp.Header)
		}
		if !isRedirect(resp.StatusCode) || (method == http.MethodHead && answer.said.Get(headerCommit) != "") {
			return answer, nil
		}
		next, err := r.next(target, resp)
		_ = resp.Body.Close() // nothing in it is of interest
		if err != nil {
			answer.stop()
			return nil, err
		}
		target = next
	}
	answer.stop()
	return nil, &Error{Code: BadAnswer, Msg: "redirects in circles", Fix: "check the address"}
}

func (r *requester) hop(ctx context.Context, method string, target *url.URL, token string, from int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "warmpath")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if from > 0 {
		req.Header.Set("Range", "bytes="+strconv.Itoa(from)+"-")
	}
	return r.transport.RoundTrip(req)
}

// listen keeps what home says.
func (r *reply) listen(h http.Header) {
	for _, name := range []string{headerCommit, headerLinkedETag, headerLinkedSize, headerErrorCode} {
		if r.said.Get(name) == "" && h.Get(name) != "" {
			r.said.Set(name, h.Get(name))
		}
	}
}

// next returns where a redirect leads.
func (r *requester) next(at *url.URL, resp *http.Response) (*url.URL, error) {
	if !r.follow {
		return nil, &Error{Code: BadAnswer, Msg: "is redirected, which a worker never does", Fix: "check the address"}
	}
	// The error of a wrong address would hold it.
	next, err := at.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" || next.Host == "" {
		return nil, &Error{Code: BadAnswer, Msg: "is redirected to what is no address", Fix: "check the hub's address"}
	}
	if next.Scheme != "https" && (next.Scheme != "http" || at.Scheme == "https") {
		return nil, &Error{Code: BadAnswer, Msg: "is redirected from https to " + next.Scheme, Fix: "use a hub that stays with https"}
	}
	next.User = nil
	return next, nil
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return false
	}
}

// sameServer reports whether two addresses have scheme, host and port in common.
func sameServer(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && a.Hostname() == b.Hostname() && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// noAnswer is a request without an answer. A certificate does not get better.
func noAnswer(err error) *Error {
	e := unavailable("does not answer", err)
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.retry = false
		e.Fix = "give the picker the authority that signed it, in a file named by SSL_CERT_FILE"
	}
	return e
}

// unavailable is a failure that may pass.
func unavailable(msg string, err error) *Error {
	return &Error{
		Code: Unavailable, Msg: msg, Err: err, retry: true,
		Fix: "check the address, the network and the proxy",
	}
}
