//go:build !linux

package gateway

import "syscall"

// childAttributes changes nothing here.
func childAttributes() *syscall.SysProcAttr { return nil }
