package testcluster

import "syscall"

// childAttributes makes the kernel end a child when the test binary dies, also
// when it dies of a timeout.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
