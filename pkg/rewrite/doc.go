// Package rewrite says which model a request is answered by when that is not the
// one it asked for, and sets the name in the response back to the one it asked for.
//
// It knows neither bodies of requests nor the protocol of the gateway. Start at
// [Choose] and [Reply].
package rewrite
