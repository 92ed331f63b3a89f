package pretok

// runs cuts out runs of one class, with a limit or none.
type runs struct {
	traits
	limit int // characters of one match at most; 0: no limit
}

var (
	eachNumber   = runs{newTraits(roleOf(number)), 1}
	eachDigit    = runs{newTraits(roleOf(digit)), 1}
	threeNumbers = runs{newTraits(roleOf(number)), 3}
	allDigits    = runs{newTraits(roleOf(digit)), 0}
	cjkRuns      = runs{newTraits(roleOf(cjk)), 0}
	lines        = runs{newTraits(roleOf(0)).lineFeed(), 0}
)

func roleOf(of class) func(class) trait {
	return func(c class) trait {
		if c&of != 0 {
			return isAlone
		}
		return isGap
	}
}

// lineFeed makes LF the only one that is cut out.
func (t traits) lineFeed() traits {
	t.ascii['\n'] = isAlone
	return t
}

// Next implements [Scanner].
func (s *runs) Next(text string, at int) int {
	if s.has(text, at, isAlone) {
		return s.runUpTo(text, at, isAlone, s.limit)
	}
	return s.run(text, at, isGap)
}
