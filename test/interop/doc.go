// Package interop tests warmpath against released Dynamo. It runs real Dynamo
// workers (mocker engines behind Dynamo's own worker code) and a real frontend
// in direct mode, which stands where a worker's sidecar stands: it runs a
// request on the worker that the request's headers name.
//
// Start at [StartStack]. The package needs python3 (3.10 or newer, with pip) and
// downloads ai-dynamo-runtime once per version, see [Install]. No GPU, etcd or
// model hub is involved: the model is a byte-level tokenizer of a few KB, so
// the token ids of a prompt are its UTF-8 bytes.
//
// It never runs warmpath's code in place of Dynamo's: what a worker did is read
// from the worker's own log and from its events.
//
// Facts: reference dynamo-live.md, sections 4 and 5.
package interop
