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
// Following the rule takes a queue of merges. Most words are one token or a few,
// so [Model.Append] looks for the result directly, in time linear in the word.
// Three facts make that exact.
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
//     and that is its encoding. The same holds for each start of the word, so a
//     position is reached by one sequence only: a position found to lead nowhere
//     need not be tried again. The search takes the longest token first and
//     steps back when stuck.
//
// # Whether two tokens are valid neighbours
//
// A closed token comes from one last merge, that one's parts from theirs, and so
// on: a tree, found when the model is built. Between two tokens only the right
// edge of the left tree and the left edge of the right tree matter. As long as
// every merge in the trees has a higher rank than the merges of its parts, things
// happen in order of rank, and one walk down both edges, youngest first, sees
// every pair of symbols that were ever neighbours across the boundary. The two
// are valid when no such pair is a merge that would have come first.
//
// A vocabulary whose trees are not in that order is possible, though not in use.
// Its words, and words with symbols that the vocabulary lacks where that matters,
// are encoded by the rule itself, with a queue (rule.go), in n log n.
package bpe
