package encoder

import (
	"errors"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
)

// ErrTokenizer is a tokenizer that does not get on in a text.
var ErrTokenizer = errors.New("encoder: the tokenizer returned an empty segment")

// EncodeText is [Encoder.Encode] for a prompt's text.
func (e *Encoder) EncodeText(r *Result, p chat.Prompt, seed block.Seed) error {
	r.reset()
	if p.AnySpecial && len(e.tokenizer.Prefix(true))+len(e.tokenizer.Suffix(true)) > 0 {
		return &chat.Error{Code: chat.CodeRequest, Msg: "versions of the engine differ in whether special tokens are added"}
	}
	j := job{e: e, r: r, text: p.Text, special: p.AddSpecial, seed: seed, usable: min(max(p.Usable, 0), len(p.Text))}
	j.whole = j.usable == len(j.text)
	if err := j.run(); err != nil {
		r.reset()
		return err
	}
	r.TextBytes, r.UsableBytes, r.Whole = len(j.text), j.usable, j.whole
	return nil
}

func (j *job) run() error {
	r, e := j.r, j.e
	if !j.recall() {
		if err := j.compute(); err != nil {
			return err
		}
	}
	j.remember()
	if j.whole {
		r.open = append(r.open, e.tokenizer.Suffix(j.special)...)
		r.close(e.layout, j.seed)
	}
	r.Tokens = r.tokens(e.layout)
	if r.WantIDs {
		return j.ids()
	}
	return nil
}

// job is the encoding of one text.
type job struct {
	e       *Encoder
	r       *Result
	text    string
	usable  int  // what lies behind is not to be relied on
	whole   bool // everything is usable
	special bool
	seed    block.Seed

	pos   int   // what is before is encoded
	node  key   // of the last cut
	cut   int   // where that is
	known int   // chains up to it
	hints hints // how the children of the last node that was found end
	full  bool  // no more nodes can be stored
}

// compute encodes what lies behind j.pos, and notes nodes on the way.
func (j *job) compute() error {
	r := j.r
	tried := j.pos // where a cut was last made or failed
	for j.pos < j.usable {
		before := len(r.open)
		ids, end := j.e.tokenizer.AppendSegment(r.open, j.text, j.pos)
		if end <= j.pos || end > len(j.text) {
			return ErrTokenizer
		}
		r.open = ids
		if end > j.usable {
			same, err := j.common(r.open[before:])
			r.open = r.open[:before+same]
			if err != nil {
				return err
			}
			break
		}
		j.pos = end
		if m := j.e.memo; m != nil && end-tried >= m.least(j.cut) && len(ids) > before {
			tried = end
			if mark := m.marks.of(j.text, end, ids[len(ids)-1]); mark != 0 {
				j.note(mark, end)
			}
		}
	}
	if m := j.e.memo; m != nil && j.whole && len(j.text)-j.cut >= minTail {
		j.note(0, len(j.text))
	}
	r.close(j.e.layout, j.seed)
	return nil
}

// common returns how many of ids, which begin at j.pos and go beyond what is
// usable, the usable text alone begins with too. What differs are ids that what
// follows has a part in.
func (j *job) common(ids []uint32) (int, error) {
	cut, usable := j.r.cut[:0], j.text[:j.usable]
	for pos := j.pos; pos < len(usable); {
		var end int
		cut, end = j.e.tokenizer.AppendSegment(cut, usable, pos)
		if end <= pos {
			return 0, ErrTokenizer
		}
		pos = end
	}
	j.r.cut = cut
	n := 0
	for n < len(ids) && n < len(cut) && ids[n] == cut[n] {
		n++
	}
	return n, nil
}

// ids fills IDs and Hashes, by tokenizing everything.
func (j *job) ids() error {
	r, t := j.r, j.e.tokenizer
	r.IDs = append(r.IDs, t.Prefix(j.special)...)
	for j.pos = 0; j.pos < j.usable; {
		before := len(r.IDs)
		ids, end := t.AppendSegment(r.IDs, j.text, j.pos)
		if end <= j.pos {
			return ErrTokenizer
		}
		r.IDs = ids
		if end > j.usable {
			same, err := j.common(ids[before:])
			if err != nil {
				return err
			}
			r.IDs = ids[:before+same]
			break
		}
		j.pos = end
	}
	if j.whole {
		r.IDs = append(r.IDs, t.Suffix(j.special)...)
	}
	r.Hashes = j.e.layout.AppendHashes(r.Hashes, r.IDs, j.seed)
	return nil
}
