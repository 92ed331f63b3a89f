// Package pretok cuts text into the pieces that a tokenizer merges on their
// own: the pre-tokenizers of Hugging Face's tokenizer.json and the patterns of
// tiktoken files. Every pattern in use has a scanner written by hand that does
// what a backtracking regex engine does with it: the first alternative that
// matches wins, each part takes what it can and gives back what it must.
//
// A scanner knows one pattern and takes one pass over the text. It has no state,
// allocates nothing and never fails. Patterns are recognised by their exact
// text; one that is not known is refused, never approximated.
//
// What a letter or a number is comes from table.go, which hack/unicode writes
// from the answers of the engines themselves.
package pretok
