// Package encoder turns a request body into the block hashes of its prompt:
// chat template, tokenizer, hashes, and a memo of the prompts seen before.
//
// A conversation sends its whole history with every turn. The memo keeps, at
// cuts of a prompt's text, the chains of the blocks up to there and the tokens
// of the unfinished block, so only what is new is tokenized and hashed. What the
// memo answers is always what a computation from the start would give: a cut is
// where the tokenizer says that neither side has a part in the other.
//
// Start at [New] and [Encoder.Encode].
package encoder
