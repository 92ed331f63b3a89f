package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// addedToken is one of a file's added tokens: text that becomes one id, beside
// the model.
type addedToken struct {
	content    string
	id         uint32
	singleWord bool // only where no word character touches it
	lstrip     bool // takes the white space on its left
	rstrip     bool // takes the white space on its right
	late       bool // matched in normalized text ("normalized")
	special    bool
	safe       bool // the end of the token is a safe split point
}

// plain reports whether the token is matched wherever its text is.
func (a *addedToken) plain() bool { return !a.singleWord && !a.lstrip && !a.rstrip }

// addedTokens are all of a file's added tokens.
type addedTokens struct {
	tokens []addedToken
	ids    map[string]uint32
	beyond int // how many are not in the model's vocabulary
	// hasLate says that some are matched in normalized text.
	hasLate bool
	// joint says that all are found in one pass over the raw text. Then set has
	// them all. Else early has those matched in raw text, set those matched in
	// normalized text.
	joint      bool
	early, set *tokenSet
	// mends says that a token holds U+FFFD, which text that is not UTF-8 is
	// mended with: then text must be mended before it is matched.
	mends bool
}

// maxAdded is how many bytes an added token may have. Where one nearly matches at
// every place of a text, all of its bytes are looked at each time. The longest in
// use have less than 100.
const maxAdded = 256

// addedTokens reads the list of added tokens. Their ids are not read: Hugging
// Face gives ids by its own rule and so does [reader.added].
func (r *reader) addedTokens(n *node) []addedToken {
	if absent(n) {
		return nil
	}
	if n.kind != kindList {
		r.fail(n, "a list should be here")
		return nil
	}
	list := make([]addedToken, 0, len(n.items))
	for i := range n.items {
		item := &n.items[i]
		if item.kind != kindObject {
			r.fail(item, "an object should be here")
			return nil
		}
		r.only(item, "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
		list = append(list, addedToken{
			id:         r.id(item, "id"),
			content:    r.text(item, "content"),
			singleWord: r.mustFlag(item, "single_word"),
			lstrip:     r.mustFlag(item, "lstrip"),
			rstrip:     r.mustFlag(item, "rstrip"),
			late:       r.mustFlag(item, "normalized"),
			special:    r.mustFlag(item, "special"),
		})
		if len(list[i].content) > maxAdded {
			r.fail(item, "the token has more than %d bytes", maxAdded)
		}
		if r.err != nil {
			return nil
		}
	}
	return r.number(n, list)
}

// number drops what counts for nothing: empty tokens and repeats. The same text
// with other flags is refused: which flags count is then a matter of order.
func (r *reader) number(n *node, list []addedToken) []addedToken {
	seen := make(map[string]int, len(list))
	kept := list[:0]
	for i, a := range list {
		if a.content == "" {
			continue
		}
		at, ok := seen[a.content]
		if !ok {
			seen[a.content] = len(kept)
			kept = append(kept, a)
			continue
		}
		before := kept[at]
		before.id = a.id
		if before != a {
			r.fail(&n.items[i], "the token is given twice, in different ways")
			return nil
		}
	}
	return kept
}

// added builds the tables. A token that the model's vocabulary has keeps that
// id; others get the ids above, in order, whatever the file says, as Hugging Face
// does when it reads a file.
func (r *reader) added(list []addedToken, v *vocabulary, norm *normalizer) addedTokens {
	a := addedTokens{tokens: list, ids: make(map[string]uint32, len(list))}
	by := make(map[uint32]bool, len(list))
	for i := range list {
		t := &list[i]
		id, ok := v.ids[t.content]
		if !ok {
			id = uint32(v.count) + uint32(a.beyond)
			a.beyond++
		}
		if by[id] {
			r.err = loadError(r.data, "added_tokens", -1, "two tokens get the id %d, because the vocabulary has holes", id)
			return a
		}
		by[id] = true
		t.id = id
		a.ids[t.content] = id
	}
	r.compile(&a, norm)
	return a
}

// compile builds the sets that tokens are found with.
func (r *reader) compile(a *addedTokens, norm *normalizer) {
	plain := true
	var early, late, all []pattern
	for _, special := range []bool{true, false} { // the order decides between equal texts
		for i := range a.tokens {
			t := &a.tokens[i]
			if t.special != special {
				continue
			}
			p := pattern{t.content, uint32(i), t.late}
			plain = plain && t.plain()
			a.mends = a.mends || strings.ContainsRune(t.content, '\uFFFD')
			if t.late {
				a.hasLate = true
				var s scratch
				p.text = strings.Clone(norm.apply(t.content, &s))
				late = append(late, p)
			} else {
				early = append(early, p)
			}
			if p.text == "" {
				r.err = loadError(r.data, "added_tokens", -1, "the token with id %s is empty once it is normalized", strconv.Itoa(int(t.id)))
				return
			}
			all = append(all, p)
		}
	}
	if a.joint = plain && (!a.hasLate || norm.identity()); a.joint {
		a.set = newTokenSet(all)
	} else {
		a.early, a.set = newTokenSet(early), newTokenSet(late)
	}
	a.markSafe()
}

// markSafe finds the tokens whose end is a safe split point: where one was
// found, no text after it can undo that, and nothing before its end has a say in
// what follows. Undone it would be by another token that covers its end and
// reaches beyond, found instead of it.
func (a *addedTokens) markSafe() {
	set := a.early
	if a.joint {
		set = a.set
	}
	if set == nil {
		return
	}
	// Where a token takes the white space on its right, others inside that are no
	// split points: each segment would look through all of it again.
	stripped := slices.ContainsFunc(a.tokens, func(t addedToken) bool { return t.rstrip })
	for i, key := range set.keys {
		t := &a.tokens[set.of[i]]
		t.safe = !t.singleWord && !t.rstrip && !a.startsInside(set, key, set.late[i]) && (!stripped || !isBlank(key))
	}
	// Found at the same place or before: it contains the token, followed by more.
	for i, key := range set.keys {
		for at := range key {
			set.each(key[at:], func(found uint32, size int, late bool) {
				firstOut := late || !set.late[i] // a late one cannot undo an early one
				if firstOut && at+size < len(key) {
					a.tokens[found].safe = false
				}
			})
		}
	}
}

// isBlank reports whether a text is all white space.
func isBlank(text string) bool { return strings.TrimLeftFunc(text, unicode.IsSpace) == "" }

// startsInside reports whether a token matched in raw text may start inside a
// late one and reach beyond it: it would be cut out first.
func (a *addedTokens) startsInside(set *tokenSet, key string, late bool) bool {
	if !late {
		return false
	}
	for at := 1; at < len(key); at++ {
		if set.earlyBeyond(key[at:]) {
			return true
		}
	}
	return false
}
