// Package admission is the line of requests that no worker has room for yet: who
// may wait, and who is next.
//
// It keeps no time and starts nothing. Whoever owns a [Queue] says when load fell
// and tries the requests that [Queue.Next] names; how they wait is not its concern.
// Rules: reference endpoint-picker.md 4.5 and dynamo.md 4.4, as far as they are not
// this package's own.
package admission
