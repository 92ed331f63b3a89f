package pretok

// fold says which letters a contraction may have.
type fold uint8

const (
	noContractions fold = iota
	lowerCase
	asciiCase // small and capital
	anyCase   // (?i:…): the long s is an s too; no other letter folds to these
)

const longS = "\u017f"

// contraction returns the end of an English contraction that starts at at, or
// at where there is none: 's, 't, 're, 've, 'm, 'll or 'd.
func contraction(text string, at int, f fold) int {
	if f == noContractions || at+1 >= len(text) || text[at] != '\'' {
		return at
	}
	bit := byte(0) // what makes a small letter of a capital
	if f != lowerCase {
		bit = 'a' - 'A'
	}
	switch text[at+1] | bit {
	case 's', 't', 'm', 'd':
		return at + 2
	case 'r', 'v':
		return second(text, at, bit, 'e')
	case 'l':
		return second(text, at, bit, 'l')
	case longS[0] | 0x20:
		if f == anyCase && len(text) > at+2 && text[at+1:at+3] == longS {
			return at + 3
		}
	}
	return at
}

// second returns the end of a contraction of two letters, the second of which
// is to be want.
func second(text string, at int, bit, want byte) int {
	if at+2 < len(text) && text[at+2]|bit == want {
		return at + 3
	}
	return at
}
