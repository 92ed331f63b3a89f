// Package tokenizer turns text into the token ids that a model's own tokenizer
// gives it: those of Hugging Face tokenizers for a tokenizer.json, those of
// tiktoken for a tiktoken file.
//
// Exactness is all: one different id, and no hash of the prompt matches what
// workers hold. So every part of a file is either understood or refused by its
// name when the file is loaded; none is approximated.
//
// Start at [Load] and [Tokenizer.Append]. A text passes through
//
//  1. added.go: added tokens are cut out, first those that are matched in the
//     raw text, later those that are matched in the normalized text;
//  2. normalize.go: what lies between is normalized;
//  3. pretokenize.go: and cut into words;
//  4. internal/bpe: and each word is encoded;
//  5. postprocess.go: the whole gets what belongs before and after it.
//
// There is no I/O here, and a Tokenizer is safe for concurrent use.
package tokenizer
