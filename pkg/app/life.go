package app

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// life is the time in which parts run: that of [App.Run].
type life struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // parts begin at any time while it lasts
	over bool
	wg   sync.WaitGroup

	failed chan error // of a part that is in use
}

var errNotRunning = errors.New("the picker is not running")

func newLife() *life { return &life{failed: make(chan error, 1)} }

// begin starts the time. It ends with ctx.
func (l *life) begin(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx = ctx
}

// watch returns the error of a part that is in use, nil when ctx has ended.
func (l *life) watch(ctx context.Context) error {
	select {
	case err := <-l.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// wait returns when ctx has ended, and all that was started has too.
func (l *life) wait(ctx context.Context) error {
	<-ctx.Done()
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.wg.Wait()
	return nil
}

// ended is closed when the time is over.
func (l *life) ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		return nil
	}
	return l.ctx.Done()
}

// start runs f until it returns. Its context ends with the time of all.
func (l *life) start(f func(context.Context)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil || l.over || l.ctx.Err() != nil {
		return errNotRunning
	}
	ctx := l.ctx
	l.wg.Go(func() { f(ctx) })
	return nil
}

// fail ends the picker for a part that it cannot do without.
func (l *life) fail(err error) {
	select {
	case l.failed <- err:
	default: // it is ending already
	}
}

// part is what a policy may replace while the picker runs: it is started, used by
// one or more generations, and stopped when none needs it any more.
type part struct {
	work  func(context.Context) error
	users int // generations; guarded by App.pooling

	inUse atomic.Bool        // its failure ends the picker
	stop  context.CancelFunc // nil until it is started
	done  chan struct{}      // closed when it has stopped
	err   error              // why it stopped by itself; to be read after done
}

func newPart(work func(context.Context) error) part {
	return part{work: work, done: make(chan struct{})}
}

// start starts the part. It is called once.
func (p *part) start(l *life) error {
	ended, stop := context.WithCancel(context.Background())
	err := l.start(func(ctx context.Context) {
		ctx, cut := context.WithCancel(ctx)
		defer cut()
		defer context.AfterFunc(ended, cut)()
		if err := p.work(ctx); ctx.Err() == nil {
			p.err = err
		}
		close(p.done)
		if p.err != nil && p.inUse.Load() {
			l.fail(p.err)
		}
	})
	if err != nil {
		stop()
		return err
	}
	p.stop = stop
	return nil
}

// end stops the part and waits for it.
func (p *part) end() {
	if p.stop == nil {
		return // it was never started
	}
	p.inUse.Store(false)
	p.stop()
	<-p.done
}

// use says that the picker needs the part from now on.
func (p *part) use(l *life) {
	p.inUse.Store(true)
	if err := p.failure(); err != nil {
		l.fail(err)
	}
}

// failure is why the part has stopped by itself.
func (p *part) failure() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}
