package scrape

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

const (
	maxPage   = 4 << 20     // bytes of a page, uncompressed
	keptPage  = 1 << 20     // bytes of a buffer that is kept
	timeLimit = time.Second // for a whole page
)

// newTransport returns what connects to endpoints. Each has one connection, which
// stays open between scrapes, however rare.
func newTransport(insecure bool) *http.Transport {
	return &http.Transport{
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec // what the policy says
		MaxIdleConnsPerHost:    1,
		MaxConnsPerHost:        1,
		IdleConnTimeout:        2 * slowest,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         16 << 10,
		DisableCompression:     true, // it would cost the engine more than the network
	}
}

// newRequest returns the request for the page of an endpoint.
func newRequest(scheme string, at netip.AddrPort, path string) *http.Request {
	return &http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: scheme, Host: at.String(), Path: path},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Host: at.String(),
		Header: http.Header{
			"Accept":          {"text/plain;version=0.0.4, */*;q=0.1"},
			"Accept-Encoding": {"identity"},
			"User-Agent":      {"warmpath"},
		},
	}
}

// fetcher fetches and reads one page at a time. What it needs for that it uses again.
type fetcher struct {
	buffer []byte
	page   page
	unzip  *gzip.Reader
}

// fetch gets a page and reads it into f.page, which is good until the next call.
func (f *fetcher) fetch(ctx context.Context, transport http.RoundTripper, request *http.Request) error {
	resp, err := transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &failure{BadStatus, fmt.Sprintf("status %d", resp.StatusCode)}
	}
	body, err := f.body(resp)
	if err != nil {
		return err
	}
	if err := f.read(body); err != nil {
		return err
	}
	f.page.scan(f.buffer)
	return nil
}

// body returns the page's text. An encoding that we did not ask for is nevertheless
// read if it is gzip, which proxies are known to add.
func (f *fetcher) body(resp *http.Response) (io.Reader, error) {
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip":
		if f.unzip == nil {
			f.unzip = new(gzip.Reader)
		}
		if err := f.unzip.Reset(resp.Body); err != nil {
			return nil, unreadable(err)
		}
		return f.unzip, nil
	default:
		return nil, &failure{Unreadable, fmt.Sprintf("the page has the encoding %.32q, which was not asked for", encoding)}
	}
}

// unreadable tells a page that is no gzip from a connection that broke.
func unreadable(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return &failure{Unreadable, "the page says that it is gzip, and is not"}
	}
	return err
}

// read reads a page into the buffer.
func (f *fetcher) read(body io.Reader) error {
	if cap(f.buffer) > keptPage || f.buffer == nil {
		f.buffer = make([]byte, 0, 64<<10)
	}
	b := f.buffer[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		f.buffer = b
		switch {
		case len(b) > maxPage:
			return errTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreadable(err)
		}
	}
}
