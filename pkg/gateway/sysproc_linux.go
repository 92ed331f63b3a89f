package gateway

import "syscall"

// childAttributes makes the kernel end the child with its parent, however that
// ends, and keeps a Ctrl-C on the terminal from reaching the child before its
// parent has stopped it in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
