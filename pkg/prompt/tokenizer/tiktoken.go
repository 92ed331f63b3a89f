package tokenizer

import (
	"bytes"
	"encoding/base64"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/pretok"
)

// TiktokenConfig is what a tiktoken file does not say itself.
type TiktokenConfig struct {
	// Pattern is the regex that cuts text into words.
	Pattern string
	// Special are the tokens beside the ranks, by id. None may start another one:
	// tiktoken does not say which of the two counts.
	Special map[uint32]string
	// Reserved is how many ids, from the number of ranks on, have the name
	// <|reserved_token_ID|> where Special has none.
	Reserved int
	// Chunked says that text between special tokens is cut into chunks first, as
	// the Python classes around tiktoken do: at 400,000 characters, and at 25,000
	// in a row of white space or of anything else.
	Chunked bool
}

// LoadTiktoken reads a tiktoken file, a line "base64 rank" for each token. Ranks
// are ids. Every error is a [*LoadError]. It keeps nothing of ranks.
//
// Special tokens are always found, as with tiktoken's allowed_special="all".
func LoadTiktoken(ranks []byte, cfg TiktokenConfig) (*Tokenizer, error) {
	t, err := loadTiktoken(ranks, cfg)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func loadTiktoken(ranks []byte, cfg TiktokenConfig) (*Tokenizer, *LoadError) {
	scanner, ok := pretok.ByTiktoken(cfg.Pattern)
	if !ok {
		return nil, loadError(nil, "pattern", -1, "the regex %s is not supported", strconv.Quote(cfg.Pattern))
	}
	tokens, count, err := readRanks(ranks)
	if err != nil {
		return nil, err
	}
	for b := range 256 {
		if inUTF8(b) && !hasByte(tokens, byte(b)) {
			return nil, loadError(nil, "", -1, "the byte 0x%02X has no rank", b)
		}
	}
	model, modelErr := bpe.New(bpe.Spec{Tokens: tokens, Ranked: true, IgnoreMerges: true, Unk: -1})
	if modelErr != nil {
		return nil, loadError(nil, "", -1, "%s", modelErr.Error())
	}
	v := vocabulary{texts: make([]string, len(tokens))}
	for id, token := range tokens {
		v.texts[id] = string(token)
	}
	t := &Tokenizer{model: model, vocab: v.compact(), chunked: cfg.Chunked}
	t.pretokenizer = pretokenizer{cuts: []cut{{scanner: scanner}}, byteLevel: true}
	if err := t.addSpecial(cfg, tokens, count); err != nil {
		return nil, err
	}
	return t, nil
}

// addSpecial adds the special tokens.
func (t *Tokenizer) addSpecial(cfg TiktokenConfig, tokens [][]byte, count int) *LoadError {
	fail := func(format string, args ...any) *LoadError {
		return loadError(nil, "special tokens", -1, format, args...)
	}
	names := make(map[uint32]string, len(cfg.Special)+cfg.Reserved)
	for i := range max(cfg.Reserved, 0) {
		id := count + i
		names[uint32(id)] = "<|reserved_token_" + strconv.Itoa(id) + "|>"
	}
	maps.Copy(names, cfg.Special)
	t.size = len(tokens)
	t.added.ids = make(map[string]uint32, len(names))
	var patterns []pattern
	for id, name := range names {
		switch _, twice := t.added.ids[name]; {
		case name == "":
			return fail("the token with id %d is empty", id)
		case twice:
			return fail("the token with id %d has the name of another", id)
		case id > maxID:
			return fail("the token id %d is above the limit of %d", id, maxID)
		case int(id) < len(tokens) && tokens[id] != nil:
			return fail("the token id %d is a rank", id)
		}
		patterns = append(patterns, pattern{name, uint32(len(t.added.tokens)), false})
		t.added.tokens = append(t.added.tokens, addedToken{content: name, id: id, special: true})
		t.added.ids[name] = id
		t.added.mends = t.added.mends || strings.ContainsRune(name, '\uFFFD')
		t.size = max(t.size, int(id)+1)
	}
	t.added.joint, t.added.set = true, newTokenSet(patterns)
	if set := t.added.set; set != nil {
		for i := 1; i < len(set.keys); i++ { // sorted: one that starts another is right before such a one
			if strings.HasPrefix(set.keys[i], set.keys[i-1]) {
				return fail("the token with id %d starts another one", t.added.tokens[set.of[i-1]].id)
			}
		}
	}
	t.added.markSafe()
	return nil
}

// readRanks reads the lines of a tiktoken file: the bytes of each token, by
// rank, and how many there are.
func readRanks(data []byte) (tokens [][]byte, count int, err *LoadError) {
	fail := func(at int, format string, args ...any) ([][]byte, int, *LoadError) {
		return nil, 0, loadError(data, "", at, format, args...)
	}
	seen := make(map[string]struct{}, len(data)/16)
	arena := make([]byte, 0, len(data)/2)
	lines := bytes.Count(data, []byte{'\n'}) + 1
	for at := 0; at < len(data); {
		line := data[at:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i]
		}
		start := at
		at += len(line) + 1
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return fail(start, "a line is not a token and its rank")
		}
		rank, idErr := parseID(fields[1])
		if idErr != nil || rank > maxID || sparse(rank, lines) {
			return fail(start, "a rank is not a whole number, or too high")
		}
		from := len(arena)
		var b64 error
		if arena, b64 = base64.StdEncoding.AppendDecode(arena, fields[0]); b64 != nil || len(arena) == from {
			return fail(start, "a token is not base64")
		}
		token := arena[from:len(arena):len(arena)]
		if _, ok := seen[string(token)]; ok {
			return fail(start, "a token is given twice")
		}
		seen[string(token)] = struct{}{}
		for int(rank) >= len(tokens) {
			tokens = append(tokens, nil)
		}
		if tokens[rank] != nil {
			return fail(start, "two tokens have the rank %d", rank)
		}
		tokens[rank] = token
		count++
	}
	if count == 0 {
		return fail(0, "there are no tokens")
	}
	return tokens, count, nil
}

// hasByte reports whether one byte is a token.
func hasByte(tokens [][]byte, b byte) bool {
	for _, token := range tokens {
		if len(token) == 1 && token[0] == b {
			return true
		}
	}
	return false
}

// kimiPattern is the pattern of Kimi's tokenizer (pat_str of tokenization_kimi.py).
var kimiPattern = strings.Join([]string{
	`[\p{Han}]+`,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
	`\p{N}{1,3}`,
	` ?[^\s\p{L}\p{N}]+[\r\n]*`,
	`\s*[\r\n]+`,
	`\s+(?!\S)`,
	`\s+`,
}, "|")

// kimiReserved is how many ids Kimi's tokenizer class sets aside.
const kimiReserved = 256

// ReadTiktokenConfig finds out from a tokenizer_config.json how the tiktoken file
// beside it is to be read. The tokenizer classes of Kimi are known; another
// class is refused by its name. Every error is a [*LoadError].
func ReadTiktokenConfig(config []byte) (TiktokenConfig, error) {
	cfg, err := readTiktokenConfig(config)
	if err != nil {
		return TiktokenConfig{}, err
	}
	return cfg, nil
}

func readTiktokenConfig(config []byte) (TiktokenConfig, *LoadError) {
	if at := invalidUTF8(config); at >= 0 {
		return TiktokenConfig{}, loadError(config, "", at, "the file is not UTF-8")
	}
	p := &parser{data: config}
	root := p.node("", 0, func(string) bool { return false })
	if p.part = ""; p.err == nil && p.peek() != kindNone {
		p.unexpected("the end of the file")
	}
	if p.err != nil {
		return TiktokenConfig{}, p.err
	}
	r := &reader{data: config}
	cfg := TiktokenConfig{
		Pattern: kimiPattern, Special: map[uint32]string{}, Reserved: kimiReserved, Chunked: true,
	}
	if class := r.text(&root, "tokenizer_class"); r.err == nil && class != "TikTokenTokenizer" {
		r.unsupported(root.get("tokenizer_class"), "the tokenizer class", class)
	}
	for _, f := range r.need(&root, "added_tokens_decoder", kindObject, "an object").fields {
		id, err := strconv.ParseUint(f.key, 10, 32)
		if err != nil || id > math.MaxInt32 {
			r.fail(&f.value, "the key is not a token id")
			break
		}
		for _, flag := range []string{"single_word", "lstrip", "rstrip"} {
			if r.flag(&f.value, flag, false) {
				r.fail(&f.value, "%s is not supported", flag)
			}
		}
		cfg.Special[uint32(id)] = r.text(&f.value, "content")
	}
	if r.err != nil {
		return TiktokenConfig{}, r.err
	}
	return cfg, nil
}
