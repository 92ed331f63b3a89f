package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// enter runs this test binary once more, in a user and network namespace of its
// own, and returns the status it ended with.
func enter(p parts) (int, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), partsEnv+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL, // sent when this thread ends, which is that of TestMain
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		return ended.ExitCode(), nil
	case errors.As(err, &ended):
		return 1, fmt.Errorf("the tests ended with %w", err)
	}
	return 1, fmt.Errorf("no user and network namespace to run the tests in: %w; "+
		"allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, "+
		"kernel.apparmor_restrict_unprivileged_userns=0), or run as root", err)
}

// setUpNetwork makes the loopback usable, and with it all addresses of subnet: what
// is sent to one of them arrives here.
func setUpNetwork() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	mask := net.CIDRMask(subnet.Bits(), 32)
	addr := mainAddr.As4()
	up := make([]byte, 2)
	*(*uint16)(unsafe.Pointer(&up[0])) = syscall.IFF_UP | syscall.IFF_RUNNING
	for _, step := range []struct {
		name, device string
		request      uintptr
		value        []byte
	}{
		{"bring up lo", "lo", syscall.SIOCSIFFLAGS, up},
		{"add the address", "lo:1", syscall.SIOCSIFADDR, socketAddress(addr[:])},
		{"set its mask", "lo:1", syscall.SIOCSIFNETMASK, socketAddress(mask)},
	} {
		if err := ioctl(fd, step.request, step.device, step.value); err != nil {
			return fmt.Errorf("network namespace: %s: %w", step.name, err)
		}
	}
	return nil
}

// socketAddress is a struct sockaddr_in without port.
func socketAddress(ip []byte) []byte {
	s := make([]byte, 16)
	*(*uint16)(unsafe.Pointer(&s[0])) = syscall.AF_INET
	copy(s[4:], ip)
	return s
}

// ioctl makes a request about a network device: a struct ifreq.
func ioctl(fd int, request uintptr, device string, value []byte) error {
	var r struct {
		name  [syscall.IFNAMSIZ]byte
		value [24]byte
	}
	copy(r.name[:], device)
	copy(r.value[:], value)
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&r))); e != 0 {
		return e
	}
	return nil
}
