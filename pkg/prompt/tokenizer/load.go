package tokenizer

import (
	"unicode/utf8"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// Load reads a tokenizer.json of Hugging Face. Every error is a [*LoadError]: the
// file is broken, or a part of it is not supported. It keeps nothing of data.
func Load(data []byte) (*Tokenizer, error) {
	t, err := load(data)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func load(data []byte) (*Tokenizer, *LoadError) {
	if at := invalidUTF8(data); at >= 0 {
		return nil, loadError(data, "", at, "the file is not UTF-8")
	}
	p := &parser{data: data}
	root := p.node("", 0, func(path string) bool { return path == "model.vocab" || path == "model.merges" })
	if p.part = ""; p.err == nil && p.peek() != kindNone {
		p.unexpected("the end of the file")
	}
	if p.err != nil {
		return nil, p.err
	}
	r := &reader{data: data}
	if root.kind != kindObject {
		r.fail(&root, "the file is not an object")
		return nil, r.err
	}
	return r.tokenizer(&root)
}

// invalidUTF8 returns the first byte that is not UTF-8, -1 for none.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// tokenizer builds the parts of a file, in the order in which they need each
// other. The decoder is left alone: it has no say in encoding.
func (r *reader) tokenizer(root *node) (*Tokenizer, *LoadError) {
	r.only(root, "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
	if v := root.get("version"); v != nil && v.text != "1.0" {
		r.fail(v, "the version is not 1.0")
	}
	for _, key := range []string{"truncation", "padding"} {
		if v := root.get(key); !absent(v) {
			r.fail(v, "%s is not supported, it must be null", key)
		}
	}
	t := &Tokenizer{}
	t.normalizer = r.normalizer(root.get("normalizer"))
	t.pretokenizer = r.pretokenizer(root.get("pre_tokenizer"))
	r.postprocessor(t, root.get("post_processor"))
	if r.err != nil {
		return nil, r.err
	}
	model := r.need(root, "model", kindObject, "an object")
	vocab := r.model(t, model)
	if r.err != nil {
		return nil, r.err
	}
	tokens := r.addedTokens(root.get("added_tokens"))
	t.added = r.added(tokens, vocab, &t.normalizer)
	r.together(root, t)
	if r.err != nil {
		return nil, r.err
	}
	t.vocab = vocab.compact()
	t.size = vocab.count + t.added.beyond
	return t, nil
}

// together refuses parts that are supported alone but not with each other.
func (r *reader) together(root *node, t *Tokenizer) {
	// What comes first is what starts at the first character of the text as it
	// was: several pieces may, once that character has become several.
	if t.pretokenizer.firstOnly && !t.normalizer.identity() {
		r.fail(root.get("pre_tokenizer"), "prepend_scheme first is not supported with a normalizer")
	}
}

// model builds the BPE model and returns its vocabulary.
func (r *reader) model(t *Tokenizer, n *node) *vocabulary {
	r.only(n, "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges")
	// Files from before model types had names are of the kind that their fields
	// say: only BPE has merges.
	if typ := n.get("type"); typ != nil && r.text(n, "type") != "BPE" {
		r.unsupported(typ, "the model", typ.text)
	}
	if v := n.get("dropout"); !absent(v) && v.text != "0" && v.text != "0.0" {
		r.fail(v, "dropout is not supported: it makes token ids random")
	}
	for _, key := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		if v := n.get(key); !absent(v) && (v.kind != kindString || v.text != "") {
			r.fail(v, "%s is not supported, it must be empty", key)
		}
	}
	vocabAt := r.need(n, "vocab", kindObject, "an object")
	mergesAt := r.need(n, "merges", kindList, "a list")
	if r.err != nil {
		return nil
	}
	v, err := readVocabulary(r.data, vocabAt)
	if r.err = err; err != nil {
		return nil
	}
	byteLevel := t.pretokenizer.byteLevel
	spec := bpe.Spec{
		IgnoreMerges: r.flag(n, "ignore_merges", false),
		Chars:        !byteLevel,
		ByteFallback: r.flag(n, "byte_fallback", false) && !byteLevel,
		Unk:          -1,
		FuseUnk:      r.flag(n, "fuse_unk", false),
	}
	spec.Tokens = v.tokens(byteLevel)
	r.unknown(n, v, &spec)
	if r.err != nil {
		return nil
	}
	if spec.Merges, r.err = readMerges(r.data, mergesAt, v, spec.Tokens); r.err != nil {
		return nil
	}
	m, modelErr := bpe.New(spec)
	if modelErr != nil {
		r.fail(n, "%s", modelErr.Error())
		return nil
	}
	t.model = m
	return v
}

// unknown settles what becomes of text that the vocabulary has no token for.
// Over a byte-level alphabet there must be none: every byte that UTF-8 uses
// needs a token.
func (r *reader) unknown(n *node, v *vocabulary, spec *bpe.Spec) {
	complete := true
	for b := range spec.ByteTokens {
		name := byteName(b)
		if !spec.Chars {
			name = string(alphabet[b])
		}
		id, ok := v.ids[name]
		if spec.ByteTokens[b] = -1; ok {
			spec.ByteTokens[b] = int32(id)
		}
		complete = complete && (ok || !inUTF8(b))
	}
	if !spec.Chars {
		if !complete {
			r.fail(n.get("vocab"), "some bytes have no token")
		}
		return
	}
	unk := n.get("unk_token")
	if absent(unk) || complete && spec.ByteFallback {
		return
	}
	id, ok := v.ids[r.text(n, "unk_token")]
	if !ok {
		r.fail(unk, "the unknown token is not in the vocabulary")
		return
	}
	spec.Unk = int32(id)
}

// inUTF8 reports whether a byte can occur in UTF-8.
func inUTF8(b int) bool { return b != 0xC0 && b != 0xC1 && b < 0xF5 }

// byteName is how a vocabulary with byte fallback names a byte: <0x0A>.
func byteName(b int) string {
	const digits = "0123456789ABCDEF"
	return "<0x" + string([]byte{digits[b>>4], digits[b&15]}) + ">"
}
