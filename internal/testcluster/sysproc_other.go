//go:build !linux

package testcluster

import "syscall"

// childAttributes changes nothing here.
func childAttributes() *syscall.SysProcAttr { return nil }
