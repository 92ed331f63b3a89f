package modelfiles

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// WorkerConfig says whose files to take.
type WorkerConfig struct {
	// Cards of workers that run the same model. They are asked in this order until
	// one gives its files.
	Cards []Card
	// Hub, when set, is asked for what a card says is there ("hf://..."), as a
	// worker does which serves no files. The repository is that of the card.
	// What comes must still be what the worker has.
	Hub *HubConfig
	// Net is how to behave over the network.
	Net Net
}

// Worker gets the files of a model from Dynamo workers that serve them
// (DYN_SYSTEM_PORT is set, and DYN_SELF_HOST_METADATA is on). It is safe for
// concurrent use.
type Worker struct {
	cfg WorkerConfig
	hub *Hub
}

// NewWorker returns a source. It asks nobody yet.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	cfg.Net = cfg.Net.withDefaults()
	if len(cfg.Cards) == 0 {
		return nil, &Error{Code: BadConfig, Source: "worker", Msg: "no model card is given", Fix: "wait for a worker, or name its card"}
	}
	for _, c := range cfg.Cards {
		if (c.Tokenizer == nil) == (c.Tiktoken == nil) {
			return nil, &Error{Code: BadConfig, Source: "worker", Msg: "a model card must name one tokenizer", Fix: "take what ParseCard returns"}
		}
		if name := cfg.Cards[0].differs(c); name != "" {
			return nil, &Error{
				Code: Conflict, Source: "workers", File: name, Msg: "is not the same for all",
				Fix: "one pool serves one model: finish the roll-out, or separate the pools",
			}
		}
	}
	w := &Worker{cfg: cfg}
	if repository, ok := cfg.Cards[0].atHub(); ok && cfg.Hub != nil {
		hub := *cfg.Hub
		hub.Repository = repository
		if name, revision, ok := strings.Cut(repository, "@"); ok {
			hub.Repository, hub.Revision = name, revision
		}
		var err error
		if w.hub, err = NewHub(hub); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// differs returns the name of a file that matters and that two cards do not have
// in common.
func (c Card) differs(other Card) string {
	sum := func(f *CardFile) string {
		if f == nil {
			return ""
		}
		return f.Blake3
	}
	switch {
	case sum(c.Tokenizer) != sum(other.Tokenizer), sum(c.Tiktoken) != sum(other.Tiktoken):
		return nameTokenizer
	case sum(c.Config) != sum(other.Config):
		return nameConfig
	case sum(c.Template) != sum(other.Template):
		return nameTemplate
	default:
		return ""
	}
}

// atHub returns the repository that the card's tokenizer is in.
func (c Card) atHub() (string, bool) {
	f := c.Tokenizer
	if f == nil {
		f = c.Tiktoken
	}
	if f.scheme() != "hf" {
		return "", false
	}
	repository := strings.TrimPrefix(f.Path, "hf://")
	return repository[:max(strings.LastIndexByte(repository, '/'), 0)], true
}

// Fetch returns the files, each with the checksum that the worker's card says.
func (w *Worker) Fetch(ctx context.Context) (*Files, error) {
	f, err := w.any(ctx)
	if err == nil {
		f.Since13 = !slices.ContainsFunc(w.cfg.Cards, func(c Card) bool { return !c.Since13 })
	}
	return f, err
}

// any returns the files of any of the workers.
func (w *Worker) any(ctx context.Context) (*Files, error) {
	if w.hub != nil {
		f, err := w.hub.Fetch(ctx)
		if err != nil {
			return nil, err
		}
		if err := w.cfg.Cards[0].Verify(f); err != nil {
			return nil, err
		}
		f.Verified = true
		return f, nil
	}
	var failed []error
	for _, c := range w.cfg.Cards {
		f, err := w.fetch(ctx, c)
		if err == nil {
			return f, nil
		}
		failed = append(failed, from(err, c.source()))
		if CodeOf(err) == Canceled {
			break
		}
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, &Error{Code: worst(failed), Source: "workers", Msg: "none gives its files", Err: errors.Join(failed...)}
}

// worst returns the code of the first error that does not pass by itself, or else
// of the last.
func worst(errs []error) Code {
	for _, err := range errs {
		if code := CodeOf(err); code != Unavailable && code != NotFound {
			return code
		}
	}
	return CodeOf(errs[len(errs)-1])
}

// source names a worker by the server that its tokenizer is at.
func (c Card) source() string {
	f := c.Tokenizer
	if f == nil {
		f = c.Tiktoken
	}
	text := "worker of " + strconv.Quote(c.Name)
	if u, err := url.Parse(f.Path); err == nil && u.Host != "" {
		text += " at " + u.Host
	}
	return text
}

// fetch gets all files of one card.
func (w *Worker) fetch(ctx context.Context, c Card) (*Files, error) {
	template := nameTemplate
	if c.TemplateIsJSON {
		template = nameTemplateJSON
	}
	f := &Files{Source: c.source(), Verified: true}
	for _, one := range []struct {
		name     string
		file     *CardFile
		optional bool
	}{
		{nameTokenizer, c.Tokenizer, false},
		{nameTiktoken, c.Tiktoken, false},
		{nameConfig, c.Config, false},
		{template, c.Template, false},
		{nameGenerationConfig, c.GenerationConfig, true},
		{nameModelConfig, c.ModelConfig, true},
	} {
		if one.file == nil || (one.optional && !one.file.served()) {
			continue
		}
		data, err := w.get(ctx, one.file)
		if err == nil {
			err = checkContent(one.name, data)
		}
		if err != nil {
			return nil, inFile(err, one.name)
		}
		f.put(one.name, data)
	}
	f.Revision = contentDigest(f)
	return f, nil
}

func (f *CardFile) served() bool { return f.scheme() == "http" || f.scheme() == "https" }

// get downloads one file and checks it.
func (w *Worker) get(ctx context.Context, f *CardFile) ([]byte, error) {
	if !f.served() {
		return nil, &Error{
			Code: NotServed, Msg: "is not served by the worker",
			Fix: "set DYN_SYSTEM_PORT and DYN_SELF_HOST_METADATA=1 on the worker, or name a folder or a hub",
		}
	}
	target, err := url.Parse(f.Path)
	if err != nil || target.Hostname() == "" || target.User != nil {
		return nil, &Error{Code: BadContent, Msg: "has no good address on the worker's card", Fix: "look at the card in discovery"}
	}
	limit := w.cfg.Net.MaxFileBytes
	if f.Size > limit {
		return nil, tooLarge(limit)
	}
	if f.Size >= 0 {
		limit = f.Size
	}
	r, done := newRequester(w.cfg.Net, target, "", false)
	defer done()
	d := &download{requester: r, target: target, limit: limit, meaning: w.meaning}
	data, err := d.fetch(ctx)
	if CodeOf(err) == TooLarge && limit == f.Size {
		err = otherFile("has more bytes than the worker's card says, " + strconv.FormatInt(f.Size, 10))
	}
	if err != nil {
		return nil, err
	}
	return data, f.check(data)
}

// meaning returns what an answer means that is not the file.
func (w *Worker) meaning(r *reply) error {
	switch status := r.StatusCode; {
	case status == http.StatusNotFound:
		return &Error{
			Code: NotFound, Msg: "the worker does not serve it",
			Fix: "the worker was started again, or another one has its address: look at its card in discovery",
		}
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		e := unavailable("the worker answers "+answered(status), nil)
		e.after = retryAfter(r.Header, w.cfg.Net.Now())
		return e
	default:
		return &Error{Code: BadAnswer, Msg: "the worker answers " + answered(status), Fix: "is it a worker? look at its card in discovery"}
	}
}
