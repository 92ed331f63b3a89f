// Package modelfiles gets the files that a tokenizer and a chat template are
// made from: out of a directory, from a Hugging Face compatible hub, or from the
// Dynamo worker that runs the model.
//
// A [Source] gives [Files]: bytes, where they are from, and which version they
// are. They are whole or refused: sizes are bounded, and what the other side
// says about a checksum is checked. Nothing here reads what is in a tokenizer.
//
// Errors are of type [*Error]: a short code, the file, what is wrong and what to
// do about it. They hold no token, and no query of an address, which at a hub is
// a signature.
//
// Start at [Directory], [Hub] or [Worker].
package modelfiles
