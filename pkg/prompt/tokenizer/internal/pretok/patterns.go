package pretok

// The patterns that are known, by whom they are known from. Line ends are
// written as escapes.
const (
	gpt2Pattern    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	r50kPossessive = `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`

	anyCase = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	blanks  = `\s*[\r\n]+|\s+(?!\S)|\s+`

	qwen2Pattern  = anyCase + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + blanks
	llama3Pattern = anyCase + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + blanks
	qwen35Pattern = anyCase + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + blanks
	seedPattern   = anyCase + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|` + blanks

	// cl100k has been written in three ways: as Llama 3 has it, and as these. The
	// last one differs in whitespace at the end of the text.
	cl100kPattern    = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	cl100kPossessive = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	bailingPattern   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`

	capitals = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	smalls   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	// o200k is also the pattern of gpt-oss, Llama 4 and MiniMax M2.
	o200kPattern = capitals + `*` + smalls + `+` + anyCase + `?|` + capitals + `+` + smalls + `*` + anyCase +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + blanks
	// tekken is the pattern of Mistral's and of NVIDIA's models after it.
	tekkenPattern = capitals + `*` + smalls + `+|` + capitals + `+` + smalls + `*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + blanks

	capitalsNotHan = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	smallsNotHan   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	kimiPattern    = `[\p{Han}]+|` + capitalsNotHan + `*` + smallsNotHan + `+` + anyCase + `?|` +
		capitalsNotHan + `+` + smallsNotHan + `*` + anyCase + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + blanks

	threeDigits = `\p{N}{1,3}`
	oneDigit    = `\p{N}`
	cjkPattern  = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	// deepseekPattern is the last of DeepSeek V3's three.
	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|` + blanks
	linePattern = `[^\n]+|[\n]+`
)

// deepseekSequence is the sequence of Splits of DeepSeek V3 and R1 and of
// Hunyuan.
var deepseekSequence = [...]string{threeDigits, cjkPattern, deepseekPattern}

var byRegex = map[string]Scanner{
	gpt2Pattern:      &gpt2,
	r50kPossessive:   &gpt2,
	qwen2Pattern:     &qwen2,
	bailingPattern:   &qwen2,
	llama3Pattern:    &llama3,
	cl100kPattern:    &llama3,
	cl100kPossessive: &cl100kOniguruma,
	qwen35Pattern:    &qwen35,
	seedPattern:      &seed,
	o200kPattern:     &o200k,
	tekkenPattern:    &tekken,
	kimiPattern:      &kimi,
	threeDigits:      &threeNumbers,
	oneDigit:         &eachNumber,
	cjkPattern:       &cjkRuns,
	deepseekPattern:  &deepseekLast,
	linePattern:      &lines,
}
