// Package interop tests warmpath against released Dynamo. It runs real Dynamo
// workers (mocker engines behind Dynamo's own worker code) and a real frontend.
// In direct mode that stands where a worker's sidecar stands: it runs a request
// on the worker that the request's headers name. In kv mode it is another router,
// which the picker hears of.
//
// Start at [StartStack]. [StartPicker] adds the picker, [StartRelay] a network
// between both that loses messages, [StartPods] the names of pods. The package needs python3 (3.10 or newer, with pip) and
// downloads ai-dynamo-runtime once per version, see [Install]. No GPU, etcd or
// model hub is involved: the model is a byte-level tokenizer of a few KB, so
// the token ids of a prompt are its UTF-8 bytes.
//
// It never runs warmpath's code in place of Dynamo's: what a worker did is read
// from the worker's own log, from its events, and from its answers to recovery
// queries.
//
// Facts: reference dynamo-live.md.
package interop
