package render

import (
	"context"
	"errors"
	"fmt"

	"github.com/sony/gobreaker/v2"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// TokensFrom is [Client.Tokens] of one engine, named by its base URL. Whoever
// compares engines needs to know which of them answered.
func (c *Client) TokensFrom(ctx context.Context, url string, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
	dst, err := c.tokensFrom(ctx, url, dst, kind, body)
	c.counts[outcomeOf(err)].Add(1)
	if err != nil {
		return dst[:0], err
	}
	return dst, nil
}

func (c *Client) tokensFrom(ctx context.Context, url string, dst []uint32, kind prompt.Kind, body []byte) ([]uint32, error) {
	call, err := c.newCall(kind, body)
	if err != nil {
		return dst, err
	}
	ctx, cancel := context.WithTimeout(ctx, call.timeout)
	defer cancel()
	for _, e := range c.current() {
		if e.url != url {
			continue
		}
		out, err := e.ask(ctx, call, dst)
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
			return dst, ErrOpen
		}
		return dst, fmt.Errorf("engine %s: %w", url, err)
	}
	return dst, ErrNoEngine
}

// Engines returns the base URLs of the engines of this moment.
func (c *Client) Engines() []string {
	engines := c.current()
	urls := make([]string, len(engines))
	for i, e := range engines {
		urls[i] = e.url
	}
	return urls
}
