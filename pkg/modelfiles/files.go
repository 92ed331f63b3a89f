package modelfiles

import (
	"context"
	"errors"
	"strings"
)

// The names of files in a model repository.
const (
	nameTokenizer        = "tokenizer.json"
	nameTiktoken         = "tiktoken.model"
	nameConfig           = "tokenizer_config.json"
	nameTemplate         = "chat_template.jinja"
	nameTemplateJSON     = "chat_template.json"
	nameGenerationConfig = "generation_config.json"
	nameModelConfig      = "config.json"

	tiktokenSuffix = ".tiktoken"
)

// DefaultMaxFileBytes bounds one file. The largest tokenizer.json in use has
// 33 MB.
const DefaultMaxFileBytes = 256 << 20

// Source is where the files of a model come from. Fetch gets them anew. It is
// safe for concurrent use; its errors are of type [*Error].
type Source interface {
	Fetch(ctx context.Context) (*Files, error)
}

// Files is what a source gave. Of Tokenizer and Tiktoken exactly one is there,
// everything else may be missing (nil).
type Files struct {
	Tokenizer    []byte // tokenizer.json
	Tiktoken     []byte // lines of "base64 rank", where there is no tokenizer.json
	TiktokenName string // its name: tiktoken.model or <any>.tiktoken
	Config       []byte // tokenizer_config.json
	// Template is chat_template.jinja, or else chat_template.json, as it came.
	// See TemplateSource. It goes before the template in tokenizer_config.json.
	Template         []byte
	TemplateName     string // its name; a custom template may have any
	GenerationConfig []byte // generation_config.json
	ModelConfig      []byte // config.json

	Source string // for people: which directory, hub and repository, or worker
	// Revision is the version: the commit of a repository, or else a digest of
	// names and contents, "sha256:" and 64 hex digits.
	Revision string
	// Verified is that each file had the checksum which the source gave for it.
	Verified bool
	// Since13 is that all Dynamo workers of the model are of release 1.3 or later.
	Since13 bool
	// Stale, when set, is why the hub could not be asked. The files are the last
	// ones known.
	Stale error
	// CacheError, when set, is why the files could not be kept on disk. They are
	// good, and will be asked for again.
	CacheError error
}

// errAbsent is what a getter answers for a file that is not there.
var errAbsent = errors.New("there is no such file")

// getter returns the content of a file, or errAbsent.
type getter func(name string) ([]byte, error)

// collect asks for the files that are wanted, and only for those: the second of
// two kinds when the first is absent. tiktoken is the name of that file.
func collect(get getter, tiktoken string) (*Files, error) {
	f := &Files{}
	found, err := f.first(get, nameTokenizer, tiktoken)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &Error{
			Code: NotFound, Msg: "there is neither " + nameTokenizer + " nor " + tiktoken,
			Fix: "name the folder, repository or worker that holds the model's tokenizer",
		}
	}
	for _, names := range [][]string{{nameConfig}, {nameTemplate, nameTemplateJSON}, {nameGenerationConfig}, {nameModelConfig}} {
		if _, err := f.first(get, names...); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// first keeps the first of these files that is there, and says whether one was.
func (f *Files) first(get getter, names ...string) (bool, error) {
	for _, name := range names {
		data, err := get(name)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err == nil {
			err = checkContent(name, data)
		}
		if err != nil {
			return false, inFile(err, name)
		}
		f.put(name, data)
		return true, nil
	}
	return false, nil
}

// put keeps the content of a file by its name.
func (f *Files) put(name string, data []byte) {
	switch name {
	case nameTokenizer:
		f.Tokenizer = data
	case nameConfig:
		f.Config = data
	case nameTemplate, nameTemplateJSON:
		f.Template, f.TemplateName = data, name
	case nameGenerationConfig:
		f.GenerationConfig = data
	case nameModelConfig:
		f.ModelConfig = data
	default:
		f.Tiktoken, f.TiktokenName = data, name
	}
}

// file is one file of a model.
type file struct {
	name string
	data []byte
}

// list returns the files that are there, always in the same order.
func (f *Files) list() []file {
	all := []file{
		{nameTokenizer, f.Tokenizer},
		{f.TiktokenName, f.Tiktoken},
		{nameConfig, f.Config},
		{f.TemplateName, f.Template},
		{nameGenerationConfig, f.GenerationConfig},
		{nameModelConfig, f.ModelConfig},
	}
	there := all[:0]
	for _, one := range all {
		if one.data != nil {
			there = append(there, one)
		}
	}
	return there
}

// isTiktoken reports whether a file of this name holds ranks.
func isTiktoken(name string) bool {
	return name == nameTiktoken || strings.HasSuffix(name, tiktokenSuffix)
}
