package modelfiles

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// Hub gets a model's files from a repository of a Hugging Face compatible hub. It
// is safe for concurrent use.
//
// It asks by commit: a branch or tag is turned into one first, so that all files
// are of one version, and what is in the cache for a commit is right for ever.
type Hub struct {
	cfg   HubConfig
	home  *url.URL
	cache *cache
	busy  chan struct{} // one fetch at a time: the next finds the cache filled
}

// attemptsWhenHeld is how often a hub that is down is asked when the cache holds
// what the revision was last: a start should not wait for long.
const attemptsWhenHeld = 2

// NewHub returns a source. It asks nobody yet.
func NewHub(cfg HubConfig) (*Hub, error) {
	cfg = cfg.withDefaults()
	home, err := cfg.check()
	if err != nil {
		return nil, from(err, cfg.name())
	}
	h := &Hub{cfg: cfg, home: home, busy: make(chan struct{}, 1)}
	if cfg.CacheDir != "" {
		h.cache = newCache(cfg.CacheDir, home, cfg.Repository, cfg.Net.MaxFileBytes)
	}
	return h, nil
}

// Fetch returns the files of the revision. A commit that the cache holds whole
// is not asked for. When the hub is down, or too slow for the deadline of ctx, the
// last commit known for the revision is returned, with [Files.Stale] set; errors
// that a retry would not help ([Unauthorized], [NotFound], ...) are returned in
// any case.
func (h *Hub) Fetch(ctx context.Context) (*Files, error) {
	select {
	case h.busy <- struct{}{}:
		defer func() { <-h.busy }()
	case <-ctx.Done():
		return nil, from(canceled(ctx), h.cfg.name())
	}
	f, err := h.fetch(ctx)
	if err != nil {
		return nil, from(err, h.cfg.name())
	}
	f.Source = h.cfg.name()
	return f, nil
}

func (h *Hub) fetch(ctx context.Context) (*Files, error) {
	held := h.load(h.known())
	if held != nil && (h.cfg.Offline || isCommit(h.cfg.Revision)) {
		return held, nil
	}
	if h.cfg.Offline {
		return nil, &Error{
			Code: Offline, Msg: "the cache does not hold this revision whole",
			Fix: "fetch once with offline off and the same cache folder, or name a commit that was fetched",
		}
	}
	n := h.cfg.Net
	if held != nil {
		n.Attempts = min(n.Attempts, attemptsWhenHeld)
	}
	f, err := h.ask(ctx, n)
	if held != nil && (CodeOf(err) == Unavailable || errors.Is(err, context.DeadlineExceeded)) {
		held.Stale = from(err, h.cfg.name())
		return held, nil
	}
	return f, err
}

// known returns the commit that the revision is, as far as is known here.
func (h *Hub) known() string {
	if isCommit(h.cfg.Revision) || h.cache == nil {
		return h.cfg.Revision
	}
	return h.cache.ref(h.cfg.Revision)
}

// load returns a commit's files from the cache, nil when they are not there whole.
func (h *Hub) load(commit string) *Files {
	if h.cache == nil || !isCommit(commit) {
		return nil
	}
	return h.cache.load(commit, h.cfg.TiktokenName)
}

// ask asks the hub, and fills the cache.
func (h *Hub) ask(ctx context.Context, n Net) (*Files, error) {
	token, err := h.cfg.token()
	if err != nil {
		return nil, err
	}
	r, done := newRequester(n, h.home, token, true)
	defer done()
	commit := h.cfg.Revision
	if !isCommit(commit) {
		if commit, err = h.resolve(ctx, r); err != nil {
			return nil, err
		}
		if f := h.load(commit); f != nil {
			f.CacheError = h.cache.point(h.cfg.Revision, commit)
			return f, nil
		}
	}
	f, err := h.get(ctx, r, commit)
	if err != nil {
		return nil, err
	}
	if h.cache != nil {
		f.CacheError = h.cache.store(h.cfg.Revision, commit, f, h.cfg.TiktokenName)
	}
	return f, nil
}

// resolve asks which commit the revision is.
func (h *Hub) resolve(ctx context.Context, r *requester) (commit string, err error) {
	err = r.net.retry(ctx, func() error {
		answer, err := r.send(ctx, http.MethodHead, h.file(h.cfg.Revision, nameConfig), 0)
		if err != nil {
			return err
		}
		defer answer.close()
		ok := answer.StatusCode == http.StatusOK || isRedirect(answer.StatusCode)
		// A file that is missing tells the commit that it is missing from.
		if err := h.meaning(answer); !ok && !errors.Is(err, errAbsent) {
			return err
		}
		if commit = answer.said.Get(headerCommit); isCommit(commit) {
			return nil
		}
		return &Error{
			Code: BadAnswer, Msg: "the hub does not say which commit the revision is",
			Fix: "check the hub's address, the repository and the revision, or name a commit by its 40 digits",
		}
	})
	return commit, err
}

// get downloads the files of a commit.
func (h *Hub) get(ctx context.Context, r *requester, commit string) (*Files, error) {
	verified := true
	f, err := collect(func(name string) ([]byte, error) {
		d := &download{
			requester: r, target: h.file(commit, name), limit: h.cfg.Net.MaxFileBytes, meaning: h.meaning,
			expect: func(a *reply) error { return sameCommit(a, commit) },
		}
		data, err := d.fetch(ctx)
		verified = verified && (err != nil || d.sum != "")
		return data, err
	}, h.cfg.TiktokenName)
	if err != nil {
		return nil, err
	}
	f.Revision, f.Verified = commit, verified
	return f, nil
}

func sameCommit(a *reply, commit string) error {
	if said := a.said.Get(headerCommit); said != "" && said != commit {
		return &Error{Code: BadAnswer, Msg: "is of commit " + said + ", asked for was " + commit, Fix: "check the proxy or mirror"}
	}
	return nil
}

// file returns the address of a file.
func (h *Hub) file(revision, name string) *url.URL {
	// JoinPath takes escaped elements: a revision may hold a slash.
	return h.home.JoinPath(h.cfg.Repository, "resolve", url.PathEscape(revision), url.PathEscape(name))
}
