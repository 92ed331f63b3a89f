package modelfiles

import (
	"cmp"
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// DefaultHub is the hub that is asked when none is named.
const DefaultHub = "https://huggingface.co"

// HubConfig says which repository of which hub.
type HubConfig struct {
	// Address of the hub, https unless it is trusted otherwise. Default [DefaultHub].
	Address string
	// Repository is "organisation/name".
	Repository string
	// Revision is a branch, a tag, or better: a commit by its 40 digits. Default
	// "main".
	Revision string
	// TokenFile holds the bearer token. It is read for every fetch, so that a
	// Secret may change. Empty: no token.
	TokenFile string
	// CacheDir keeps files between starts. Several processes may share it.
	// Empty: no cache.
	CacheDir string
	// Offline uses the cache only.
	Offline bool
	// TiktokenName is the file of ranks in a repository without tokenizer.json.
	// Default tiktoken.model.
	TiktokenName string
	// Net is how to behave over the network.
	Net Net
}

func (c HubConfig) withDefaults() HubConfig {
	c.Address = cmp.Or(c.Address, DefaultHub)
	c.Revision = cmp.Or(c.Revision, "main")
	c.TiktokenName = cmp.Or(c.TiktokenName, nameTiktoken)
	c.Net = c.Net.withDefaults()
	return c
}

// name is the source's name for people. The address holds no secret, see check.
func (c HubConfig) name() string {
	address := c.Address
	if _, err := parseBase(address); err != nil {
		address = "(a wrong address)"
	}
	return "hub " + address + ", repository " + c.Repository + "@" + c.Revision
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?$`)

// check returns the parsed address, or what is wrong.
func (c HubConfig) check() (*url.URL, error) {
	bad := func(msg, fix string) error { return &Error{Code: BadConfig, Msg: msg, Fix: fix} }
	home, err := parseBase(c.Address)
	switch {
	case err != nil:
		return nil, bad("the hub's address: "+err.Error(), `write it like "`+DefaultHub+`"`)
	case !repositoryName.MatchString(c.Repository) || strings.Contains(c.Repository, ".."):
		return nil, bad("the repository is no name of one", `write it like "organisation/name"`)
	case !isRevision(c.Revision):
		return nil, bad("the revision is no name of one", "name a branch, a tag or a commit")
	case !isTiktoken(c.TiktokenName) || strings.ContainsAny(c.TiktokenName, "/\\") || !isRevision(c.TiktokenName):
		return nil, bad("the name of the tiktoken file", "write it like "+nameTiktoken+" or any"+tiktokenSuffix)
	case c.Offline && c.CacheDir == "":
		return nil, bad("offline without a cache", "name the cache's folder")
	case c.TokenFile != "" && home.Scheme == "http" && !isLoopback(home.Hostname()):
		return nil, bad("a token would be sent over http, for all to read", "use https, or no token")
	default:
		return home, nil
	}
}

// isRevision reports whether git would take this for a name: no control
// characters, no dots that lead elsewhere.
func isRevision(s string) bool {
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }
	return s != "" && len(s) <= 255 && !strings.Contains(s, "..") && strings.IndexFunc(s, bad) < 0 &&
		!strings.HasPrefix(s, "/") && !strings.HasPrefix(s, ".") && !strings.HasPrefix(s, "-")
}

// parseBase reads an address to which paths are added.
func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not an address")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password: it is shown in errors")
	case (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return nil, errors.New("must start with http:// or https:// and name a host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must not hold a query or a fragment")
	}
	return u, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// maxTokenBytes bounds the file of the token: a wrong one may be anything.
const maxTokenBytes = 16 << 10

// token reads the token, "" when none is configured.
func (c HubConfig) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	bad := func(msg string, err error) error {
		return &Error{Code: BadConfig, Msg: "the file of the token " + msg, Err: err, Fix: "mount the Secret, with the token alone as the file's content"}
	}
	data, err := readFile(c.TokenFile, maxTokenBytes)
	if errors.Is(err, errAbsent) {
		return "", bad("is missing", nil)
	}
	if err != nil {
		e := asError(err)
		return "", bad(e.Msg, e.Err)
	}
	token := strings.TrimSpace(string(data))
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || strings.IndexFunc(token, odd) >= 0 {
		return "", bad("does not hold a token", nil)
	}
	return token, nil
}
