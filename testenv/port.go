package testenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// reservation reserves a port of 127.0.0.1. Its holder may listen, stop and listen again; neither the system nor
// another process that uses this package gives the port to others meanwhile. While the holder does not listen,
// connections are refused.
type reservation struct {
	port int
	free func() error
}

// Addr returns host:port.
func (r *reservation) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Close releases the port. On nil it does nothing.
func (r *reservation) Close() error {
	if r == nil {
		return nil
	}
	return r.free()
}

// reserve reserves a port, if possible below the ephemeral ports.
func reserve(ctx context.Context) (r *reservation, err error) {
	const tries = 1000
	lowest, highest := 20000, 32000
	if first, ok := firstEphemeral(); ok && first < highest {
		highest = max(first, lowest+1000) // nearly all ports are ephemeral: use one of those
	}
	for range tries {
		if r, err = reservePort(ctx, lowest+rand.IntN(highest-lowest)); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", lowest, highest, err)
}

// Nowhere returns an address, host:port, on which nothing listens until the test ends.
func Nowhere(t testing.TB) string {
	t.Helper()
	r, err := reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.Addr()
}

// hangUp stops listening immediately. Close alone is not enough: a child process has a copy of the socket until it
// executes its program, and connections are accepted meanwhile.
func hangUp(l net.Listener) error {
	socket, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = socket.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) }) // not supported everywhere
	}
	return errors.Join(err, l.Close())
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}
