// Package extproc is the edge to Envoy: external-processing streams in,
// decisions out.
//
// One goroutine serves one stream, which is one HTTP request (stream.go). Its
// headers and body become a pick.Request (request.go), the decision becomes
// header mutations and dynamic metadata, or an error becomes an immediate
// response (response.go, the only file that knows HTTP status codes).
//
// All that a policy decides is a [Routing]. A request keeps the one that was in
// use when its headers came (routing.go).
//
// It never changes a byte of a body and never holds a lock while it sends or
// receives. Start at [Server].
//
// Rules: reference endpoint-picker.md section 1, envoy.md sections 4 and 5.
package extproc
