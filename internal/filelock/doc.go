// Package filelock keeps two processes from installing the same thing at once.
package filelock
