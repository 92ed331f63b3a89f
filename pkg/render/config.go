package render

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Protocol is how an engine is asked (engines.md 6.1).
type Protocol uint8

const (
	// Auto uses Render, and Tokenize for an engine that has no render endpoint.
	Auto Protocol = iota
	// Render is vLLM's /v1/…/render: it takes the request as it is, and is exact.
	Render
	// Tokenize is /tokenize. It is given only the fields that it knows, so a
	// chat can differ where other fields reach the template (reasoning_effort,
	// documents, tool_choice "none").
	Tokenize
)

// String returns the protocol's name in configuration.
func (p Protocol) String() string {
	switch p {
	case Auto:
		return "Auto"
	case Render:
		return "Render"
	case Tokenize:
		return "Tokenize"
	default:
		return fmt.Sprintf("Protocol(%d)", uint8(p))
	}
}

// What a zero field of [Config] stands for.
const (
	DefaultTimeout          = time.Second
	DefaultBreakerFailures  = 5
	DefaultBreakerCooldown  = 10 * time.Second
	DefaultMaxRequestBytes  = 8 << 20
	DefaultMaxResponseBytes = 64 << 20
)

// Config says which engines to ask, and how long to bear with them.
type Config struct {
	// URLs are the base URLs of the engines, such as "http://render:8000".
	URLs []string
	// Pool returns the base URLs of the pool's workers of this moment. It is
	// asked on every call when URLs is empty, and must be cheap.
	Pool func() []string
	// Protocol is how engines are asked. The zero value is Auto.
	Protocol Protocol
	// Timeout bounds one call of Tokens, whatever number of engines it tries. Each
	// MB of the request adds a second.
	Timeout time.Duration
	// BreakerFailures in a row pause an engine.
	BreakerFailures int
	// BreakerCooldown is how long. Then one request tries the engine again.
	BreakerCooldown time.Duration
	// MaxRequestBytes is the largest request that is sent to an engine.
	MaxRequestBytes int64
	// MaxResponseBytes bounds an answer.
	MaxResponseBytes int64
	// HTTP is the client to use. Nil gives one of our own, which keeps
	// connections, speaks HTTP/1.1 and follows no redirect.
	HTTP *http.Client
	// Now is the clock, time.Now when nil. The breakers have their own.
	Now func() time.Time
}

// Validate says what is wrong in a configuration.
func (c Config) Validate() error {
	var errs []error
	for i, u := range c.URLs {
		if err := checkURL(u); err != nil {
			errs = append(errs, fmt.Errorf("urls[%d]: %w", i, err))
		}
	}
	if c.Protocol > Tokenize {
		errs = append(errs, fmt.Errorf("protocol: unknown value %d", c.Protocol))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"timeout", int64(c.Timeout)},
		{"breakerFailures", int64(c.BreakerFailures)},
		{"breakerCooldown", int64(c.BreakerCooldown)},
		{"maxRequestBytes", c.MaxRequestBytes},
		{"maxResponseBytes", c.MaxResponseBytes},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s: must not be negative", f.name))
		}
	}
	return errors.Join(errs...)
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("not a URL")
	}
	if u.User != nil {
		return errors.New("must not hold a user or a password: it is shown in errors")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q must start with http:// or https:// and name a host", text)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be a base URL, without a query or a fragment")
	}
	return nil
}

func (c Config) withDefaults() Config {
	orDefault(&c.Timeout, DefaultTimeout)
	orDefault(&c.BreakerFailures, DefaultBreakerFailures)
	orDefault(&c.BreakerCooldown, DefaultBreakerCooldown)
	orDefault(&c.MaxRequestBytes, DefaultMaxRequestBytes)
	orDefault(&c.MaxResponseBytes, DefaultMaxResponseBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.HTTP == nil {
		c.HTTP = newHTTP()
	}
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func newHTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConns:        1024,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true, // lists of ids on a short hop
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
