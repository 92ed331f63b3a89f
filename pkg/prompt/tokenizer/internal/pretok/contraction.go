package pretok

const longS = "\u017f"

// contraction returns the end of an English contraction that starts at at, or
// at where there is none: 's, 't, 're, 've, 'm, 'll or 'd. anyCase is (?i:…),
// for which the long s, U+017F, is an s too; no other letter of another
// alphabet folds to one of these.
func contraction(text string, at int, anyCase bool) int {
	if at+1 >= len(text) || text[at] != '\'' {
		return at
	}
	fold := byte(0)
	if anyCase {
		fold = 'a' - 'A'
	}
	switch text[at+1] | fold {
	case 's', 't', 'm', 'd':
		return at + 2
	case 'r', 'v':
		return second(text, at, fold, 'e')
	case 'l':
		return second(text, at, fold, 'l')
	case longS[0] | 0x20:
		if anyCase && len(text) > at+2 && text[at+1:at+3] == longS {
			return at + 3
		}
	}
	return at
}

// second returns the end of a contraction of two letters, the second of which
// is to be want.
func second(text string, at int, fold, want byte) int {
	if at+2 < len(text) && text[at+2]|fold == want {
		return at + 3
	}
	return at
}
