package modelfiles

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// download is one file on its way, over all attempts.
type download struct {
	*requester
	target *url.URL
	limit  int64
	// meaning returns what a status other than 200 and 206 means.
	meaning func(*reply) error
	// expect, if set, looks at what the hub says with the file.
	expect func(*reply) error

	sum     checksum // as the hub says; empty: not known
	size    int64    // the same; -1: not known
	got     bytes.Buffer
	resumed bool
}

// fetch returns the whole file. The hub's checksum, if it gives one, is that of
// the file.
func (d *download) fetch(ctx context.Context) ([]byte, error) {
	d.size = -1
	if err := d.net.retry(ctx, func() error { return d.attempt(ctx) }); err != nil {
		return nil, err
	}
	return d.got.Bytes(), nil
}

// attempt goes on where the last one ended, when what comes can be checked, and
// starts again otherwise.
func (d *download) attempt(ctx context.Context) error {
	if d.sum == "" {
		d.got.Reset()
	}
	r, err := d.send(ctx, http.MethodGet, d.target, d.got.Len())
	if err != nil {
		return err
	}
	defer r.close()
	if err := d.accept(r); err != nil {
		return err
	}
	body, err := d.open(r)
	if err != nil {
		return err
	}
	if err := d.copy(body, r); err != nil {
		if r.Header.Get("Content-Encoding") != "" {
			d.got.Reset() // what has come does not say where to go on
		}
		return err
	}
	return d.check()
}

// accept looks at the head of an answer, and drops what was there before when the
// answer does not continue it.
func (d *download) accept(r *reply) error {
	switch {
	case r.StatusCode == http.StatusOK:
		d.restart()
	case r.StatusCode == http.StatusPartialContent && d.got.Len() > 0 && startsAt(r.Header, d.got.Len()):
		d.resumed = true
	case d.got.Len() > 0 && (r.StatusCode == http.StatusPartialContent || r.StatusCode == http.StatusRequestedRangeNotSatisfiable):
		d.restart()
		return unavailable("cannot be continued", nil)
	default:
		return d.meaning(r)
	}
	if d.expect != nil {
		if err := d.expect(r); err != nil {
			return err
		}
	}
	sum := checksumOf(r.said.Get(headerLinkedETag))
	if sum == "" && r.atHome {
		sum = checksumOf(r.Header.Get("Etag"))
	}
	if d.resumed && sum != d.sum {
		d.restart()
		return unavailable("changed on the way", nil)
	}
	d.sum = sum
	if size, err := strconv.ParseInt(r.said.Get(headerLinkedSize), 10, 64); err == nil && size >= 0 {
		d.size = size
	}
	return nil
}

func (d *download) restart() {
	d.got.Reset()
	d.resumed, d.sum, d.size = false, "", -1
}

// startsAt reports whether a part begins with this byte.
func startsAt(h http.Header, at int) bool {
	return strings.HasPrefix(h.Get("Content-Range"), "bytes "+strconv.Itoa(at)+"-")
}

// open returns the content of an answer that is not larger than it may be.
func (d *download) open(r *reply) (io.Reader, error) {
	if d.size > d.limit || int64(d.got.Len())+r.ContentLength > d.limit {
		return nil, tooLarge(d.limit)
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		// An answer may promise more than it holds: not all of it is set aside.
		d.got.Grow(int(min(max(r.ContentLength, 0), 64<<20)))
		return r.Body, nil
	case "gzip":
		if d.got.Len() > 0 {
			d.restart()
			return nil, unavailable("cannot be continued", nil)
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, unavailable("is cut short", r.why(err))
		}
		return z, nil
	default:
		return nil, &Error{Code: BadAnswer, Msg: "comes in encoding " + strconv.Quote(encoding) + ", which was not asked for", Fix: "check the proxy"}
	}
}

// copy reads to the end, or to one byte over the limit.
func (d *download) copy(body io.Reader, r *reply) error {
	part := make([]byte, 64<<10)
	for {
		n, err := body.Read(part)
		if n > 0 {
			r.alive()
			d.got.Write(part[:n])
		}
		if int64(d.got.Len()) > d.limit {
			return tooLarge(d.limit)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unavailable("is cut short", r.why(err))
		}
	}
}

// check compares with what the hub says. A file from several parts is fetched
// once more in one.
func (d *download) check() error {
	if d.size >= 0 && int64(d.got.Len()) != d.size {
		err := unavailable(fmt.Sprintf("has %d bytes of %d", d.got.Len(), d.size), nil)
		if int64(d.got.Len()) > d.size {
			d.restart()
		}
		return err
	}
	err := d.sum.check(d.got.Bytes())
	if err == nil {
		return nil
	}
	e := asError(err)
	e.retry = d.resumed
	d.restart()
	return e
}
