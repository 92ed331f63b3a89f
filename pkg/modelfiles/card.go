package modelfiles

import (
	"encoding/hex"
	"encoding/json"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"
)

// Card is what of a Dynamo worker's model card is about files
// (dynamo-live.md section 3).
type Card struct {
	Name       string // what the model is called in requests
	Repository string // where the worker has it from; may be empty

	Tokenizer        *CardFile // tokenizer.json, or else
	Tiktoken         *CardFile // a file of ranks
	Config           *CardFile
	Template         *CardFile
	TemplateIsJSON   bool // it is a chat_template.json
	GenerationConfig *CardFile
	ModelConfig      *CardFile
	// Since13 is that the worker is of Dynamo 1.3 or later: it says its type.
	Since13 bool
}

// CardFile is one file on a card.
type CardFile struct {
	// Path is an address at the worker, "hf://repository/name", or a path on the
	// worker's own disk.
	Path   string
	Blake3 string // 64 hex digits
	Size   int64  // bytes; -1 where the card does not say
}

// wireFile is a file as a card has it.
type wireFile struct {
	Path     string `json:"path"`
	Checksum string `json:"checksum"` // "blake3:" and hex digits
	Size     *int64 `json:"size"`
}

// slot is a field of a card that says by its one key what kind of file it has.
type slot map[string]json.RawMessage

type wireCard struct {
	DisplayName      string     `json:"display_name"`
	SourcePath       string     `json:"source_path"`
	ModelInfo        slot       `json:"model_info"`
	Tokenizer        slot       `json:"tokenizer"`
	PromptFormatter  slot       `json:"prompt_formatter"`
	ChatTemplateFile slot       `json:"chat_template_file"`
	GenConfig        slot       `json:"gen_config"`
	ExtraFiles       []wireFile `json:"extra_files"`
	WorkerType       string     `json:"worker_type"`
}

// ParseCard reads a model card: the object that discovery has, or the card_json in
// it. A kind of file that is not known is refused, so is a card without a
// tokenizer.
func ParseCard(data []byte) (Card, error) {
	var outer struct {
		Inner json.RawMessage `json:"card_json"`
	}
	if err := json.Unmarshal(data, &outer); err == nil && len(outer.Inner) > 0 {
		data = outer.Inner
	}
	var w wireCard
	if json.Unmarshal(data, &w) != nil {
		// Not the cause: it would quote the card.
		return Card{}, badCard("is not a Dynamo model card", "give the object in discovery, or its card_json")
	}
	c := Card{Name: w.DisplayName, Repository: w.SourcePath, Since13: w.WorkerType != ""}
	for _, one := range []slot{w.Tokenizer, w.ModelInfo, w.PromptFormatter, w.GenConfig, w.ChatTemplateFile} {
		for kind, value := range one {
			if err := c.put(kind, value); err != nil {
				return Card{}, err
			}
		}
	}
	for _, extra := range w.ExtraFiles {
		if err := c.putExtra(extra); err != nil {
			return Card{}, err
		}
	}
	if c.Tokenizer != nil && c.Tiktoken != nil {
		return Card{}, badCard("names two tokenizers", "update the picker")
	}
	if c.Tokenizer == nil && c.Tiktoken == nil {
		return Card{}, &Error{
			Code: NotServed, Source: "model card of " + strconv.Quote(c.Name), Msg: "names no tokenizer",
			Fix: "the worker's engine tokenizes itself: name a folder or a repository with the tokenizer",
		}
	}
	return c, nil
}

func badCard(msg, fix string) error {
	return &Error{Code: BadContent, Source: "model card", Msg: msg, Fix: fix}
}

// put keeps the file of a slot.
func (c *Card) put(kind string, value json.RawMessage) error {
	var to **CardFile
	switch kind {
	case "hf_tokenizer_json":
		to = &c.Tokenizer
	case "tik_token_model":
		to = &c.Tiktoken
	case "hf_config_json":
		to = &c.ModelConfig
	case "hf_tokenizer_config_json":
		to = &c.Config
	case "hf_generation_config_json":
		to = &c.GenerationConfig
	case "hf_chat_template", "hf_chat_template_jinja", "hf_chat_template_json":
		to, c.TemplateIsJSON = &c.Template, kind == "hf_chat_template_json"
		var template struct {
			File json.RawMessage `json:"file"`
		}
		if json.Unmarshal(value, &template) != nil {
			return badCard("has no file as "+kind, "update the picker")
		}
		value = template.File
	default:
		return badCard("has a file of unknown kind "+strconv.Quote(kind), "update the picker")
	}
	var w wireFile
	if json.Unmarshal(value, &w) != nil {
		return badCard("has no file as "+kind, "update the picker")
	}
	f, err := w.file()
	if err == nil {
		*to = f
	}
	return err
}

// putExtra keeps a file that has no slot, where it is of use.
func (c *Card) putExtra(w wireFile) error {
	var to **CardFile
	switch path.Base(w.Path) {
	case nameConfig:
		to = &c.Config
	case nameTemplate:
		to = &c.Template
	}
	if to == nil || *to != nil {
		return nil
	}
	f, err := w.file()
	if err == nil {
		*to = f
	}
	return err
}

func (w wireFile) file() (*CardFile, error) {
	name := strconv.Quote(path.Base(w.Path))
	algorithm, sum, _ := strings.Cut(w.Checksum, ":")
	sum = strings.ToLower(sum)
	switch {
	case w.Path == "":
		return nil, badCard("has a file without a path", "update the picker")
	case algorithm != "blake3" || len(sum) != 64 || !isHex(sum):
		return nil, badCard("has no blake3 checksum for "+name, "update the picker")
	case w.Size != nil && *w.Size < 0:
		return nil, badCard("has a negative size for "+name, "update the picker")
	}
	f := &CardFile{Path: w.Path, Blake3: sum, Size: -1}
	if w.Size != nil {
		f.Size = *w.Size
	}
	return f, nil
}

// scheme returns "http", "https", "hf" or what else the path begins with; empty
// for a path on a disk.
func (f *CardFile) scheme() string {
	u, err := url.Parse(f.Path)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// check compares content with the card.
func (f *CardFile) check(data []byte) error {
	if f.Size >= 0 && int64(len(data)) != f.Size {
		return otherFile("has " + strconv.Itoa(len(data)) + " bytes, the worker's card says " + strconv.FormatInt(f.Size, 10))
	}
	sum := blake3.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != f.Blake3 {
		return otherFile("has blake3 " + got + ", the worker's card says " + f.Blake3)
	}
	return nil
}

// otherFile is that a file is not the one on the card.
func otherFile(msg string) error {
	return &Error{
		Code: BadChecksum, Msg: msg,
		Fix: "the worker has other files than its card or this source: start it again, take the files from it, or name the revision that it has",
	}
}

// Verify compares files from anywhere with those of the worker: the tokenizer, its
// configuration and the template. Other files may differ. The error, of code
// [BadChecksum], names the first that is not the same.
func (c Card) Verify(f *Files) error {
	for _, one := range []struct {
		name string
		card *CardFile
		data []byte
	}{
		{nameTokenizer, c.Tokenizer, f.Tokenizer},
		{nameTiktoken, c.Tiktoken, f.Tiktoken},
		{nameConfig, c.Config, f.Config},
		{nameTemplate, c.Template, f.Template},
	} {
		var err error
		switch {
		case one.card != nil && one.data != nil:
			err = one.card.check(one.data)
		case one.card != nil:
			err = &Error{Code: BadChecksum, Msg: "is missing, the worker has one", Fix: "take the files from the worker"}
		case one.data != nil && one.name != nameConfig:
			err = &Error{Code: BadChecksum, Msg: "is there, but the worker has none", Fix: "take the files from the worker"}
		}
		if err != nil {
			return from(inFile(err, one.name), f.Source)
		}
	}
	return nil
}
