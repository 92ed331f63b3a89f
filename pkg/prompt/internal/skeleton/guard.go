package skeleton

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// errLooked says that the template wants to look into a content. It never leaves
// the package.
var errLooked = errors.New("skeleton: the template looks into a content")

// guards puts the functions of the rewritten template into vars. whole are the
// contents as the template sees them, by the number of each atom in them;
// literals are what the template looks for.
func guards(vars map[string]jinja.Value, whole, literals []string) {
	add := func(name string, passes func(v jinja.Value, args []jinja.Value) bool) {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			if len(args) == 0 || !passes(args[0], args[1:]) {
				return jinja.Undefined(), errLooked
			}
			return args[0], nil
		})
	}
	add(guardNone, func(v jinja.Value, _ []jinja.Value) bool { return !hasAtom(v) })
	add(guardText, func(v jinja.Value, _ []jinja.Value) bool { return !v.IsString() || !textHasAtom(v.AsString()) })
	add(guardPrint, func(v jinja.Value, _ []jinja.Value) bool { return v.IsString() || !hasAtom(v) })
	add(guardSeek, func(v jinja.Value, _ []jinja.Value) bool {
		if v.IsString() {
			return !textHasAtom(v.AsString()) || isPart(v.AsString(), whole) || !mayStraddle(v.AsString(), literals)
		}
		return v.IsDict() || !hasAtom(v)
	})
	add(guardKey, keyPasses)
	add(guardJoin, func(v jinja.Value, _ []jinja.Value) bool { return allTexts(v) || !hasAtom(v) })

	var lefts []side // of the sums being computed
	add(guardLeft, func(v jinja.Value, _ []jinja.Value) bool {
		lefts = append(lefts, sideOf(v))
		return true
	})
	add(guardRight, func(v jinja.Value, _ []jinja.Value) bool {
		if len(lefts) == 0 {
			return false
		}
		left, right := lefts[len(lefts)-1], sideOf(v)
		lefts = lefts[:len(lefts)-1]
		return left+right != sideText+sideAtoms
	})
}

// side is what matters of one side of a sum.
type side int

const (
	sideOther side = 0
	sideText  side = 1
	sideAtoms side = 3 // no text, but with an atom in it
)

func sideOf(v jinja.Value) side {
	switch {
	case v.IsString():
		return sideText
	case hasAtom(v):
		return sideAtoms
	default:
		return sideOther
	}
}

// mayStraddle reports whether, with some texts in place of the atoms in s, a
// literal can be in it that has a part in an atom and a part outside of it.
func mayStraddle(s string, literals []string) bool {
	for first := true; ; first = false {
		raw, rest, more := strings.Cut(s, atomOpen)
		for _, l := range literals {
			if more && !first && strings.Contains(l, raw) {
				return true
			}
			for n := 1; n < len(l); n++ {
				if more && strings.HasSuffix(raw, l[:n]) || !first && strings.HasPrefix(raw, l[n:]) {
					return true
				}
			}
		}
		if !more {
			return false
		}
		_, s, _ = strings.Cut(rest, atomClose)
	}
}

func textHasAtom(s string) bool { return strings.Contains(s, atomOpen) }

// maxValues bounds the values that a guard looks at. Values can share parts, so
// a small one can be endless to walk.
const maxValues = 1 << 16

// hasAtom reports whether there is an atom anywhere in v. What is too large or
// nests too deep to tell counts.
func hasAtom(v jinja.Value) bool {
	left := maxValues
	return findAtom(v, 0, &left)
}

func findAtom(v jinja.Value, depth int, left *int) bool {
	if *left--; *left < 0 || depth > maxNesting {
		return true
	}
	switch {
	case v.IsString():
		return textHasAtom(v.AsString())
	case v.IsList():
		for _, item := range v.AsList().Items {
			if findAtom(item, depth+1, left) {
				return true
			}
		}
	case v.IsDict():
		// Not by Keys: what belongs to a loop is in Data only.
		for key, in := range v.AsDict().Data {
			if textHasAtom(key) || findAtom(in, depth+1, left) {
				return true
			}
		}
	}
	return false
}

// isPart reports whether s is a part of one of the contents with its atoms.
func isPart(s string, whole []string) bool {
	_, rest, ok := strings.Cut(s, atomOpen)
	if !ok {
		return false
	}
	number, _, ok := strings.Cut(rest, atomClose)
	n, err := strconv.Atoi(number)
	return ok && err == nil && n >= 0 && n < len(whole) && strings.Contains(whole[n], s)
}

// keyPasses is guardKey: nothing under one key of the dicts in a list has an
// atom.
func keyPasses(v jinja.Value, args []jinja.Value) bool {
	if len(args) != 1 || !args[0].IsString() || !v.IsList() {
		return !hasAtom(v)
	}
	for _, item := range v.AsList().Items {
		if !item.IsDict() {
			if hasAtom(item) {
				return false
			}
			continue
		}
		if in, ok := item.AsDict().Get(args[0].AsString()); ok && hasAtom(in) {
			return false
		}
	}
	return true
}

func allTexts(v jinja.Value) bool {
	if !v.IsList() {
		return v.IsString()
	}
	for _, item := range v.AsList().Items {
		if !item.IsString() {
			return false
		}
	}
	return true
}
