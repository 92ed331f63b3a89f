package bpe

// Scratch is working memory of one goroutine. The zero value is ready; it grows
// to what the longest word needs and is then reused.
type Scratch struct {
	symbols []symbol
	queue   queue
	choices choices
}
