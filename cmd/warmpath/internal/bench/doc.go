// Package bench measures a picker from outside: the server runs as a process of
// its own, so its CPU time and memory are its own. Start at [ExtProc].
package bench
