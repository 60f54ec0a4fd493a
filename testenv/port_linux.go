package testenv

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// reservePort binds a socket that never listens. Bound without SO_REUSEADDR it has the port alone; with it, set
// afterwards, those that have it too may listen on the port, as servers do, while the system goes on giving it to
// nobody. A system that only calls itself Linux may see that in another way: there the port is free and no more.
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

// firstEphemeral returns the first port that the system hands out by itself.
func firstEphemeral() (port int, ok bool) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(strings.Join(strings.Fields(string(b)), " "), " ")
	port, err = strconv.Atoi(first)
	return port, err == nil
}
