package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// greetTimeout is how long a connection may take to say which query it answers.
	greetTimeout = 5 * time.Second
	// maxGreeting bounds those words, which are some 80 bytes.
	maxGreeting = 4 << 10
	// acceptPause keeps a failing accept (no file descriptors are left) from
	// turning in circles.
	acceptPause = 50 * time.Millisecond
)

// accept takes dial-backs until ctx ends, and returns when none is being looked
// at any more.
func (c *Client) accept(ctx context.Context, l net.Listener) {
	var greetings sync.WaitGroup
	defer greetings.Wait()
	defer bind(ctx, func() { l.Close() })()
	free := make(chan struct{}, c.cfg.MaxDialBacks)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return
		case err != nil:
			c.cfg.Log.Warn("accepting the answer of a worker", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			c.refuse(conn, errors.New("too many at once"))
			continue
		}
		greetings.Go(func() {
			defer func() { <-free }()
			c.greet(ctx, conn)
		})
	}
}

// greet hears which query a connection is for and hands it over.
func (c *Client) greet(ctx context.Context, conn net.Conn) {
	subject, err := hearGreeting(ctx, conn, c.greetTimeout)
	if err == nil {
		err = c.deliver(subject, conn)
	}
	if err != nil {
		c.refuse(conn, err)
	}
}

// hearGreeting reads a greeting until ctx ends or its time is up.
func hearGreeting(ctx context.Context, conn net.Conn, limit time.Duration) (subject string, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	unbind := bind(ctx, func() { interrupt(conn) })
	subject, err = readGreeting(conn)
	if unbind() {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", err
	}
	return subject, conn.SetReadDeadline(time.Time{})
}

// readGreeting reads the first frame of a dial-back.
func readGreeting(r io.Reader) (subject string, err error) {
	f, err := readFrame(r, maxGreeting, 0)
	if err != nil {
		return "", err
	}
	var greeting struct {
		Subject    string `json:"subject"`
		StreamType string `json:"stream_type"`
	}
	if err := json.Unmarshal(f.header, &greeting); err != nil {
		return "", fmt.Errorf("greeting: %w: %w", ErrProtocol, err)
	}
	if greeting.StreamType != "response" {
		return "", fmt.Errorf("stream of type %.64q: %w", greeting.StreamType, ErrProtocol)
	}
	return greeting.Subject, nil
}

// deliver gives a dial-back to its query, which thereby has all that it will get.
func (c *Client) deliver(subject string, conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.calls[subject]
	if q == nil || q.taken {
		return errors.New("no query waits for it")
	}
	q.taken = true
	q.back <- conn // has room: this happens once
	c.stats.dialBacks.Add(1)
	return nil
}

func (c *Client) refuse(conn net.Conn, why error) {
	c.stats.refused.Add(1)
	c.cfg.Log.Debug("refused a connection", "from", conn.RemoteAddr().String(), "error", why)
	conn.Close()
}
