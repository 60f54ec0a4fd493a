package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// reservePort binds a socket that never listens. Bound without SO_REUSEADDR, it has the port exclusively. SO_REUSEADDR
// is set afterwards, so that sockets with the same option, as servers have, may listen on the port, but the system does
// not assign it. If a Linux emulation behaves differently, the port is only free, not reserved.
func reservePort(ctx context.Context, port int) (*reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
	if err == nil {
		err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	r := &reservation{port: port, free: func() error { return syscall.Close(fd) }}
	l, err := listen(ctx, r.Addr())
	if err == nil {
		return r, hangUp(l)
	}
	return &reservation{port: port, free: func() error { return nil }}, r.Close()
}

// firstEphemeral returns the first ephemeral port.
func firstEphemeral() (port int, ok bool) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(b), &port)
	return port, err == nil
}
