// Package block turns token ids into the content hashes and prefix-chain hashes
// that Dynamo's workers put into their KV-cache events, so that a prompt and an
// event can be compared.
//
// It does arithmetic only: no I/O, no allocation beyond the caller's buffers.
// Start at [Layout.AppendHashes] (content hash of every full block of a prompt)
// and [AppendChains] (prefix-chain hash up to every block).
//
// Rules: reference dynamo.md section 2.
package block
