//go:build !linux

package chaos

import "syscall"

// childAttributes changes nothing here.
func childAttributes() *syscall.SysProcAttr { return nil }
