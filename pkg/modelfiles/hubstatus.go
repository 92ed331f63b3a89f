package modelfiles

import (
	"net/http"
	"strconv"
)

// What Hugging Face says in X-Error-Code.
const (
	entryNotFound    = "EntryNotFound"
	revisionNotFound = "RevisionNotFound"
	repoNotFound     = "RepoNotFound"
	gatedRepo        = "GatedRepo"
)

// meaning returns what an answer means that is not the file.
func (h *Hub) meaning(r *reply) error {
	status := r.StatusCode
	passes := func(msg string) error {
		e := unavailable(msg, nil)
		e.after = retryAfter(r.Header, h.cfg.Net.Now())
		return e
	}
	switch {
	case status == http.StatusTooManyRequests:
		e := asError(passes("too many requests were sent"))
		e.Fix = "set a token, name a commit, or use a mirror"
		return e
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		return passes("the hub answers " + answered(status))
	case !r.atHome:
		// The address of a file in the storage is signed, and may run out.
		return passes("the hub's storage answers " + answered(status))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return h.refused(status, r.said.Get(headerErrorCode))
	case status == http.StatusNotFound || status == http.StatusGone:
		return h.missing(r.said.Get(headerErrorCode))
	default:
		return &Error{Code: BadAnswer, Msg: "the hub answers " + answered(status), Fix: "check the hub's address and the proxy"}
	}
}

// refused is 401 or 403. The hub answers 401 also for what does not exist.
func (h *Hub) refused(status int, code string) error {
	e := &Error{Code: Forbidden}
	if status == http.StatusUnauthorized {
		e.Code = Unauthorized
	}
	switch {
	case code == gatedRepo && h.cfg.TokenFile == "":
		e.Msg = "the repository is gated"
		e.Fix = "accept its terms at the hub, and configure a token of that account"
	case code == gatedRepo:
		e.Code = Forbidden
		e.Msg = "the repository is gated, and the token's account has no access"
		e.Fix = "accept its terms at the hub with that account, and let a fine-grained token read gated repositories"
	case h.cfg.TokenFile == "":
		e.Msg = "the hub wants a token, or there is no such repository"
		e.Fix = "check the repository's name, and configure a token if it is private"
	case status == http.StatusUnauthorized:
		e.Msg = "the hub does not take the token, or there is no such repository"
		e.Fix = "renew the token in the Secret, and check the repository's name"
	default:
		e.Msg = "the token may not read this repository"
		e.Fix = "use a token that may"
	}
	return e
}

// missing is 404: of the file alone, unless the hub says otherwise.
func (h *Hub) missing(code string) error {
	switch code {
	case repoNotFound:
		return &Error{Code: NotFound, Msg: "there is no such repository", Fix: "check its name; if it is private, configure a token"}
	case revisionNotFound:
		return &Error{Code: NotFound, Msg: "the repository has no such revision", Fix: "name a branch, a tag or a commit that it has"}
	default:
		return errAbsent
	}
}

func answered(status int) string { return strconv.Itoa(status) + " " + http.StatusText(status) }
