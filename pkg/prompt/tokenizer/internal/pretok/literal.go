package pretok

import (
	"errors"
	"strings"
)

// Behavior is what a Split pre-tokenizer does with its matches.
type Behavior uint8

// The behaviors of tokenizer.json.
const (
	Removed            Behavior = iota // matches are left out; see [Literal.Drops]
	Isolated                           // a piece each
	MergedWithPrevious                 // at the end of the piece before, unless that is a match
	MergedWithNext                     // at the start of the piece after, unless that is a match
	Contiguous                         // neighbours are one piece
)

// ParseBehavior reads a behavior as tokenizer.json has it. Reports false for
// what is none.
func ParseBehavior(name string) (Behavior, bool) {
	for b, n := range [...]string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		if n == name {
			return Behavior(b), true
		}
	}
	return 0, false
}

// Literal is a Split pre-tokenizer whose pattern is a String: Gemma's on spaces,
// or Metaspace's with split, which is MergedWithNext on its replacement.
type Literal struct {
	mark     string
	behavior Behavior
	invert   bool
}

// NewLiteral returns the scanner for a string, a behavior and invert, which
// makes what is between the strings the matches. The error says that the string
// is empty or the behavior is none.
func NewLiteral(mark string, behavior Behavior, invert bool) (*Literal, error) {
	if mark == "" {
		return nil, errors.New("split on an empty string")
	}
	if behavior > Contiguous {
		return nil, errors.New("unknown behavior of a split")
	}
	return &Literal{mark, behavior, invert}, nil
}

// Next implements [Scanner].
func (l *Literal) Next(text string, at int) int {
	behavior := l.behavior
	if l.invert {
		// Between two gaps there is a mark, so a gap that merges always can, and
		// it takes the mark that is on the other side of it.
		switch behavior {
		case MergedWithPrevious:
			behavior = MergedWithNext
		case MergedWithNext:
			behavior = MergedWithPrevious
		default:
		}
	}
	end := at + len(l.mark)
	if strings.HasPrefix(text[at:], l.mark) {
		switch {
		case behavior == Contiguous:
			for strings.HasPrefix(text[end:], l.mark) {
				end += len(l.mark)
			}
		case behavior == MergedWithNext && !strings.HasPrefix(text[end:], l.mark):
			end = l.find(text, end)
		}
		return end
	}
	end = l.find(text, at)
	if behavior == MergedWithPrevious && end < len(text) {
		end += len(l.mark)
	}
	return end
}

// find returns where the next mark starts, or the end of the text.
func (l *Literal) find(text string, at int) int {
	if i := strings.Index(text[at:], l.mark); i >= 0 {
		return at + i
	}
	return len(text)
}

// Drops reports whether a piece that Next returned is left out of the text: a
// match, when these are removed.
func (l *Literal) Drops(piece string) bool {
	return l.behavior == Removed && (piece == l.mark) != l.invert
}
