package recovery

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ErrNoDialBack is the error of a worker that took a request and has not dialled
// back: it is slow, or cannot reach the address that it was told.
var ErrNoDialBack = errors.New("worker has not dialled back: check that workers can reach the advertised address " +
	"(a NetworkPolicy may forbid it)")

const (
	maxHeader   = 64 << 10        // bytes of a frame's header, which may hold the text of an error
	maxAck      = 64 << 10        // bytes of an acknowledgement, which is empty when all is well
	killTimeout = time.Second     // to tell a worker that its answer is not wanted any more
	endTimeout  = 2 * time.Second // for the end marker after a complete answer
)

// The control messages that either side sends as a frame's header.
const (
	controlKill = `"kill"`
	controlEnd  = `"sentinel"`
)

// exchange sends a request and reads the answer (dynamo.md 1.9, steps 2 to 4).
// The request's connection stays open until the end.
func (c *Client) exchange(ctx context.Context, q *call, t Target, r Request, listening net.Addr, id string) (Answer, error) {
	conn, err := c.send(ctx, t, r, listening, id)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	back, err := c.await(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	defer back.Close()
	p := &parser{target: t, request: r, done: ctx.Done()}
	a, err := c.receive(ctx, back, p)
	c.stats.bytes.Add(p.answer.Bytes)
	return a, err
}

// send dials a worker, sends the request and waits until it is acknowledged.
func (c *Client) send(ctx context.Context, t Target, r Request, listening net.Addr, id string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.DialTimeout,
		fmt.Errorf("worker took no request within %s: %w", c.cfg.DialTimeout, context.DeadlineExceeded))
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, causeOr(ctx, err)
	}
	unbind := bind(ctx, func() { interrupt(conn) })
	err = ask(conn, appendRequest(nil, t, r, c.cfg.callback(listening, conn.LocalAddr()), id))
	unbind()
	if err != nil {
		conn.Close()
		return nil, causeOr(ctx, err)
	}
	return conn, nil
}

// ask sends a request and reads its acknowledgement: a length and, when
// something is wrong, the worker's words.
func ask(conn net.Conn, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return fmt.Errorf("acknowledgement: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxAck {
		return fmt.Errorf("acknowledgement of %d bytes: %w (%d)", n, ErrTooLarge, maxAck)
	}
	words, err := readN(conn, int(n))
	if err != nil {
		return fmt.Errorf("acknowledgement: %w", err)
	}
	if n > 0 {
		return remoteError("Refused", string(words))
	}
	return nil
}

// await waits for the dial-back of a query.
func (c *Client) await(ctx context.Context, q *call) (net.Conn, error) {
	timer := time.NewTimer(c.cfg.DialBackTimeout)
	defer timer.Stop()
	select {
	case conn := <-q.back:
		return conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, ErrNoDialBack
	}
}

// receive reads an answer from a dial-back that has said whose it is. When the
// answer is given up, the worker is told to stop.
func (c *Client) receive(ctx context.Context, conn net.Conn, p *parser) (Answer, error) {
	unbind := bind(ctx, func() {
		kill(conn)
		interrupt(conn)
	})
	err := readAnswer(conn, p, c.cfg.MaxResponseBytes)
	cancelled := unbind()
	switch {
	case err == nil:
		readEnd(conn)
		return p.answer, nil
	case !cancelled:
		kill(conn)
	}
	return Answer{}, err
}

// kill tells a worker that nobody waits for its answer. One that cannot be told
// learns it from the closed connection.
func kill(conn net.Conn) {
	if conn.SetWriteDeadline(time.Now().Add(killTimeout)) == nil {
		_, _ = conn.Write(appendFrame(nil, []byte(controlKill), nil))
	}
}

// readAnswer reads a prologue, an answer and the word that there is no more, in at
// most limit bytes.
func readAnswer(r io.Reader, p *parser, limit int64) error {
	prologue, err := readFrame(r, maxHeader, 0)
	if err != nil {
		return fmt.Errorf("prologue: %w", cut(err))
	}
	p.answer.Bytes = prologue.size()
	if err := checkPrologue(prologue.header); err != nil {
		return err
	}
	for !p.complete {
		f, err := readFrame(r, maxHeader, limit-p.answer.Bytes-frameHead)
		if err != nil {
			return fmt.Errorf("answer: %w", cut(err))
		}
		p.answer.Bytes += f.size()
		switch {
		case len(f.header) > 0 && string(f.header) == controlEnd:
			return fmt.Errorf("answer: the worker ended before it was complete: %w", io.ErrUnexpectedEOF)
		case len(f.header) > 0:
			return fmt.Errorf("answer: frame with header %.64q: %w", f.header, ErrProtocol)
		}
		if err := p.item(f.body); err != nil {
			return err
		}
	}
	if !p.answered {
		return fmt.Errorf("complete without an answer: %w", ErrProtocol)
	}
	return nil
}

// checkPrologue reads {"error": null or a text}.
func checkPrologue(header []byte) error {
	var prologue struct {
		Error *string `json:"error"`
	}
	if err := json.Unmarshal(header, &prologue); err != nil {
		return fmt.Errorf("prologue %.64q: %w: %w", header, ErrProtocol, err)
	}
	if prologue.Error != nil {
		return remoteError("Refused", *prologue.Error)
	}
	return nil
}

// readEnd takes the end marker, so that the worker sees an orderly end. The
// answer is complete with or without.
func readEnd(conn net.Conn) {
	if conn.SetReadDeadline(time.Now().Add(endTimeout)) == nil {
		_, _ = readFrame(conn, maxHeader, 0)
	}
}

// bind calls f once ctx ends. The function it returns undoes that; when f runs
// already, it waits for f and returns true.
func bind(ctx context.Context, f func()) (unbind func() bool) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() bool {
		if stop() {
			return false
		}
		<-done
		return true
	}
}

// interrupt ends what reads from a connection or writes to it, now and later. One
// that is closed needs no end.
func interrupt(conn net.Conn) { _ = conn.SetDeadline(time.Unix(1, 0)) }

// causeOr returns why ctx ended, or err when it has not. The network may see the
// deadline of ctx a moment before ctx does.
func causeOr(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cut says of a stream's end that it came too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
