package pretok

import "unicode/utf8"

// The Python classes around tiktoken, as Llama's and Kimi's tokenizers ship
// them, never give it more than so many characters, nor a longer run of
// whitespace or of anything else. They cut before they look for special tokens.
const (
	chunkCharacters = 400_000
	chunkRun        = 25_000
)

// NextChunk returns the end of the chunk that starts at at, by the rules of
// those classes: the text that tiktoken sees at once. taken is 0 at the start
// of the text, then what the last call returned: how many characters of the
// current 400,000 are gone.
func NextChunk(text string, at, taken int) (end, takenAfter int) {
	return nextChunk(text, at, taken, chunkCharacters, chunkRun)
}

func nextChunk(text string, at, taken, most, mostRun int) (end, takenAfter int) {
	if rest := len(text) - at; rest <= mostRun && taken+rest < most {
		return len(text), taken + rest // rest counts bytes, but nothing comes after
	}
	run, blank := 0, false
	for at < len(text) && taken < most {
		r, n := rune(text[at]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[at:])
		}
		if is := isPythonSpace(r); is != blank {
			run, blank = 0, is
		}
		if run == mostRun {
			return at, taken
		}
		run++
		taken++
		at += n
	}
	if taken == most {
		taken = 0
	}
	return at, taken
}

// isPythonSpace is str.isspace for one character: White_Space and the four
// separators of ASCII.
func isPythonSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || '\t' <= r && r <= '\r' || 0x1c <= r && r <= 0x1f
	}
	return kindClasses[kindOf(r)]&space != 0
}
