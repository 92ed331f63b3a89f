// Package tokens compares the tokenizer with the reference tokenizers, string by
// string: Hugging Face tokenizers for tokenizer.json files, tiktoken for tiktoken
// files. The strings are made from a seed to be as odd as text can be.
package tokens
