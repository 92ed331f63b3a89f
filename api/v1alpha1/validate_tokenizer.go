package v1alpha1

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the zones are there whatever the image holds
)

const (
	minMemo    = 1 << 20
	maxMemo    = 1 << 36
	maxSamples = 1_000_000_000

	minOutput   = 1 << 10
	maxMessages = 1_000_000
)

func (t *TokenizerSpec) check(p *problems, path string) {
	t.Engine.check(p, path+".engine")
	t.InProcess.check(p, path+".inProcess")
	if t.Disabled && t.InProcess.Enabled() {
		p.add(path+".inProcess.source", "needs a tokenizer, which tokenizer.disabled turns off; remove one of the two")
	}
}

func (s *InProcessSpec) check(p *problems, path string) {
	s.Source.check(p, path+".source")
	checkEnum(p, path+".addSpecialTokens", s.AddSpecialTokens, SpecialAuto, SpecialAlways, SpecialNever)
	checkEnum(p, path+".engine", s.Engine, EngineAuto, EngineVLLM, EngineDynamo, EngineDynamo13)
	s.ChatTemplate.check(p, path+".chatTemplate")
	if s.MemoBytes < minMemo || s.MemoBytes > maxMemo {
		p.add(path+".memoBytes", "must be %d to %d bytes, not %d", minMemo, maxMemo, s.MemoBytes)
	}
	s.Limits.check(p, path+".limits")
	s.Parity.check(p, path+".parity")
}

func (c *ChatTemplateSpec) check(p *problems, path string) {
	checkEnum(p, path+".contentFormat", c.ContentFormat, ContentAuto, ContentString, ContentOpenAI)
	if _, err := time.LoadLocation(c.TimeZone); err != nil || c.TimeZone == "" || c.TimeZone == "Local" {
		p.add(path+".timeZone", "%.64q is no time zone; write UTC, or a name such as Europe/Zurich", c.TimeZone)
	}
	var object map[string]json.RawMessage
	if c.Kwargs != "" && (json.Unmarshal([]byte(c.Kwargs), &object) != nil || object == nil) {
		p.add(path+".kwargs", `must be a JSON object in quotes, such as '{"enable_thinking": false}'`)
	}
}

func (l *RenderLimitsSpec) check(p *problems, path string) {
	checkDuration(p, path+".time", l.Time, 1, time.Minute)
	if l.OutputBytes < minOutput || l.OutputBytes > maxBody {
		p.add(path+".outputBytes", "must be %d to %d bytes, not %d", minOutput, maxBody, l.OutputBytes)
	}
	if l.Messages < 1 || l.Messages > maxMessages {
		p.add(path+".messages", "must be 1 to %d, not %d", maxMessages, l.Messages)
	}
}

func (y *ParitySpec) check(p *problems, path string) {
	checkEnum(p, path+".policy", y.Policy, ParityWhenAvailable, ParityRequired, ParityOff)
	if n := y.SampleEvery; n != nil && (*n < 0 || *n > maxSamples) {
		p.add(path+".sampleEvery", "must be 0 to %d, not %d", maxSamples, *n)
	}
	checkDuration(p, path+".sampleInterval", y.SampleInterval, 1, time.Hour)
	checkDuration(p, path+".recheckInterval", y.RecheckInterval, 1, 24*time.Hour)
}

func (m *ModelSourceSpec) check(p *problems, path string) {
	first := ""
	for _, f := range []struct {
		name string
		set  bool
	}{{"directory", m.Directory != nil}, {"huggingFace", m.HuggingFace != nil}, {"dynamo", m.Dynamo != nil}} {
		switch {
		case !f.set:
		case first == "":
			first = f.name
		default:
			p.add(path+"."+f.name, "not allowed together with %s; keep one of the two", first)
		}
	}
	if d := m.Directory; d != nil {
		if d.Path == "" {
			p.add(path+".directory.path", "required: the folder with tokenizer.json")
		}
		checkRevision(p, path+".directory.revision", d.Revision)
		checkDuration(p, path+".directory.pollInterval", d.PollInterval, 100*time.Millisecond, time.Hour)
	}
	if h := m.HuggingFace; h != nil {
		if !repositoryName.MatchString(h.Repository) || strings.Contains(h.Repository, "..") {
			p.add(path+".huggingFace.repository", "%.128q is no repository; write organisation/name", h.Repository)
		}
		checkRevision(p, path+".huggingFace.revision", h.Revision)
		h.Hub.check(p, path+".huggingFace.hub")
	}
	if d := m.Dynamo; d != nil {
		if len(d.CardFiles) == 0 {
			p.add(path+".dynamo.cardFiles", "required: at least one file with the model card of a worker")
		}
		distinct(p, map[string]string{}, path+".dynamo.cardFiles", d.CardFiles)
		if d.Hub != nil {
			d.Hub.check(p, path+".dynamo.hub")
		}
	}
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?$`)

// checkRevision checks the name of a branch, tag or commit, as git would.
func checkRevision(p *problems, path, name string) {
	odd := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }
	if name == "" || len(name) > 255 || strings.Contains(name, "..") || strings.IndexFunc(name, odd) >= 0 || strings.ContainsAny(name[:1], "/.-") {
		p.add(path, "%.128q is no name of a branch, a tag or a commit", name)
	}
}

func (h *HubSpec) check(p *problems, path string) {
	checkURL(p, path+".address", "the address", h.Address, "https", "http")
	if strings.Contains(h.Address, "@") {
		p.add(path+".address", "must not hold a user or a token; name the file that holds the token in tokenFile")
	}
	if u, err := url.Parse(h.Address); err == nil && u.Scheme == "http" && h.TokenFile != "" && !isLoopback(u.Hostname()) {
		p.add(path+".tokenFile", "a token would be sent over http, for all to read; use https, or no token")
	}
	if h.Offline && h.CacheDir == "" {
		p.add(path+".cacheDir", "required, since offline is set")
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// paths returns the fields that name files and folders, those that are set, by
// their paths.
func (s *InProcessSpec) paths() []*string {
	list := []*string{&s.ChatTemplate.File}
	if d := s.Source.Directory; d != nil {
		list = append(list, &d.Path)
	}
	if h := s.Source.HuggingFace; h != nil {
		list = append(list, &h.Hub.TokenFile, &h.Hub.CacheDir)
	}
	if d := s.Source.Dynamo; d != nil {
		for i := range d.CardFiles {
			list = append(list, &d.CardFiles[i])
		}
		if d.Hub != nil {
			list = append(list, &d.Hub.TokenFile, &d.Hub.CacheDir)
		}
	}
	set := list[:0]
	for _, name := range list {
		if *name != "" {
			set = append(set, name)
		}
	}
	return set
}

// checkFiles looks at the files that must be there from the start: a template and
// tokens. Folders and model cards may come later.
func (s *InProcessSpec) checkFiles(p *problems, path string) {
	if s.ChatTemplate.File != "" {
		if info, err := os.Stat(s.ChatTemplate.File); err != nil {
			p.add(path+".chatTemplate.file", "%s", err)
		} else if !info.Mode().IsRegular() {
			p.add(path+".chatTemplate.file", "%s is no file", s.ChatTemplate.File)
		}
	}
	token := func(field, name string) {
		if name == "" {
			return
		}
		if _, err := readSecret(name); err != nil {
			p.add(fmt.Sprintf("%s.source.%s.hub.tokenFile", path, field), "%s", err)
		}
	}
	if h := s.Source.HuggingFace; h != nil {
		token("huggingFace", h.Hub.TokenFile)
	}
	if d := s.Source.Dynamo; d != nil && d.Hub != nil {
		token("dynamo", d.Hub.TokenFile)
	}
}
