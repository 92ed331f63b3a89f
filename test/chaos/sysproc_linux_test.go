package chaos

import "syscall"

// childAttributes makes the kernel end the child with the test, however that ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
