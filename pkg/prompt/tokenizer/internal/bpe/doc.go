// Package bpe merges: it turns one pre-tokenized word into the token ids that
// byte-pair encoding gives it.
//
// # The rule
//
// A word starts as a row of symbols: its bytes, or its characters. Of all
// neighbours that are a merge, the pair of lowest rank becomes one symbol, the
// leftmost first among equals, and so on until no neighbours are a merge. This
// is the rule of Hugging Face's models.BPE and of tiktoken.
//
// # What is done instead
//
// Following the rule takes a queue of merges (rule.go). Most words are one token
// or a few, so [Model.Append] looks for the result itself, in time linear in the
// word. Four facts make that exact, for merges in any order.
//
//  1. Cut a word where its encoding has a boundary. Each side, encoded alone,
//     gives its side of the encoding: nothing merged across the boundary, so
//     each side's merges happened in the order they would have alone. Hence
//     every token of an encoding is closed: encoded alone, it is itself. Hence
//     too each two neighbours are valid: encoded alone, together, they stay two.
//  2. The reverse holds. Take closed tokens of which all neighbours are valid,
//     and follow the rule on what they spell. Look at the first merge across one
//     of their boundaries. Until then the two tokens beside it developed as they
//     do when only the two are encoded, and this merge would have been first
//     there as well; but those two are valid. So there is no such merge.
//  3. So a word has exactly one sequence of closed tokens with valid neighbours,
//     and that is its encoding.
//  4. The same holds for each start of the word, so each position is reached by
//     one sequence only. A search that takes the longest token first, and steps
//     back where it is stuck, therefore comes to each position once at most. So
//     does one in any other order: in long runs of one byte, another is better.
//
// # Which tokens are closed, and which neighbours valid
//
// A closed token comes from one last merge, its parts from theirs, and so on: a
// tree. Only merges in such trees ever happen; a vocabulary may list many more.
//
// Give each merge in a tree a time: its rank, or if that is higher the latest
// time below it, since it cannot happen before its parts are there. When two
// tokens are encoded together, the merges of both happen in order of time, the
// left one's first among equals. (Should something with a higher rank than that
// happen before a merge, then something below that merge was ready, had a lower
// rank, and was passed over.)
//
// What may spoil the two is a merge across their boundary: of a symbol on the
// right edge of the left tree with one on the left edge of the right tree, while
// both are there. Such a pair merges exactly when its rank comes before the time
// at which either symbol is merged away on its own side. One walk down the two
// edges, youngest symbol first, sees every such pair ([Model.meet]). When a symbol
// is merged away in the very moment that brought it about, because that merge has
// a lower rank and only waited for it, then the rank itself counts instead of the
// time.
//
// The tree of a token is found the same way: of the merges that make it, one has
// closed parts that meet undisturbed, or none has.
//
// # Symbols without a token
//
// Where a character falls back to the tokens of its bytes, and these never merge,
// nothing crosses it and the search goes on behind it. Everything else that has
// to do with missing symbols is left to the rule, in n log n.
package bpe
