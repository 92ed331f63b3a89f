// Package prompt reads from a request body what routing needs: the model, the
// form of the prompt, and its token ids when the body carries them.
//
// It looks at every byte once and builds no tree. It never does I/O, never
// changes a body, never tokenizes and never puts prompt text in an error. Start
// at [Body], and keep one per worker of your own: its buffers are reused.
package prompt
