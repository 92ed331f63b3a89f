package modelfiles

import (
	"context"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// What a zero field of [Net] stands for.
const (
	DefaultAttempts = 5
	DefaultStall    = 30 * time.Second
	DefaultPause    = time.Second
	DefaultMaxPause = time.Minute
)

// Net is how to behave over a network. The zero value is fine.
type Net struct {
	// Attempts per file, when the other side is down, slow or overloaded.
	Attempts int
	// Stall is how long it may take until the next byte comes. The whole is
	// bounded by the context only.
	Stall time.Duration
	// Pause is the time before the second attempt. It doubles from one to the
	// next, up to MaxPause, and is shortened by up to half, by chance. Where the
	// other side says when to come back, that counts; more than MaxPause is not
	// waited for.
	Pause, MaxPause time.Duration
	// MaxFileBytes bounds one file, after decompression. Default
	// [DefaultMaxFileBytes].
	MaxFileBytes int64

	// Transport carries requests; nil gives one of our own, which is closed
	// when a fetch ends.
	Transport http.RoundTripper
	// Wait sleeps, Chance is in [0,1), Now is the clock: for tests.
	Wait   func(ctx context.Context, d time.Duration) error
	Chance func() float64
	Now    func() time.Time
}

func (n Net) withDefaults() Net {
	orDefault(&n.Attempts, DefaultAttempts)
	orDefault(&n.Stall, DefaultStall)
	orDefault(&n.Pause, DefaultPause)
	orDefault(&n.MaxPause, DefaultMaxPause)
	orDefault(&n.MaxFileBytes, DefaultMaxFileBytes)
	if n.Wait == nil {
		n.Wait = wait
	}
	if n.Chance == nil {
		n.Chance = rand.Float64
	}
	if n.Now == nil {
		n.Now = time.Now
	}
	return n
}

// orDefault sets a number that is not set, or not sensible.
func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// retry calls try until it succeeds, fails for good, or has failed often enough.
func (n Net) retry(ctx context.Context, try func() error) error {
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		e := asError(err)
		if !e.retry || attempt >= n.Attempts {
			return e
		}
		pause := n.pause(attempt)
		if e.after > n.MaxPause {
			e.Msg += " and asks to be left alone for " + e.after.Round(time.Second).String()
			return e
		}
		if n.Wait(ctx, max(pause, e.after)) != nil {
			return canceled(ctx)
		}
	}
}

// pause is the time after so many failed attempts.
func (n Net) pause(attempt int) time.Duration {
	d := n.MaxPause
	// Compared before it is shifted: a large number of attempts must not overflow.
	if shift := attempt - 1; shift < 30 && n.Pause < n.MaxPause>>shift {
		d = n.Pause << shift
	}
	return d - time.Duration(n.Chance()*float64(d)/2)
}

// rateLimitReset is in the header RateLimit, as Hugging Face sends it: how many
// seconds until requests are counted anew.
var rateLimitReset = regexp.MustCompile(`;\s*t=(\d{1,9})\b`)

// retryAfter reads when to come back: Retry-After, in seconds or a date, or else
// RateLimit. 0: they do not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if m := rateLimitReset.FindStringSubmatch(h.Get("Ratelimit")); m != nil && value == "" {
		value = m[1]
	}
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
