package extproc

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// Explain says where a request would go now, and why. Nothing is booked, counted or
// told to others, and no queue is joined. source is where the token ids came from.
// path is that of the request; headers are its own, names in lower case; the body is
// not used again by the caller. Errors are those of the request: a body that cannot be
// read.
func (s *Server) Explain(ctx context.Context, path string, headers map[string]string, body []byte) (e *pick.Explanation, source Source, err error) {
	r := s.acquire()
	defer r.release()
	list := []*corev3.HeaderValue{{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte(path)}}
	for name, value := range headers {
		list = append(list, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	var h head
	h.read(list, r)
	w := s.works.Get().(*work)
	defer s.putWork(w)
	w.req = pick.Request{Class: h.class, Session: h.session}
	if h.kind != prompt.Other {
		body, err := s.scan(r, &h, w, body)
		if err == nil {
			err = s.read(ctx, r, &h, w, body)
		}
		if err != nil {
			return nil, Unknown, err
		}
		source = w.prompt.Source
	}
	now := s.cfg.Now()
	if w.avoid = s.failures.avoid(w.avoid[:0], r.Picker.Fleet(), now); len(w.avoid) > 0 {
		w.req.Avoid = w.avoid
	}
	return r.Picker.Explain(&w.req, now, s.cfg.Random, &w.scratch), source, nil
}
