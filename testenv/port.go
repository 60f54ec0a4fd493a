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

// reservation keeps a port of 127.0.0.1 for its holder, who may listen on it, stop and listen again: meanwhile nobody
// else is given it, neither by the system nor by another process that asks here. Nobody listens on it otherwise, so
// connecting to it is refused.
type reservation struct {
	port int
	free func() error
}

// Addr returns host:port.
func (r *reservation) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Close gives the port back. Of nil it does nothing.
func (r *reservation) Close() error {
	if r == nil {
		return nil
	}
	return r.free()
}

// reserve takes a port, below those that the system hands out by itself if there is room there.
func reserve(ctx context.Context) (r *reservation, err error) {
	const tries = 1000
	lowest, highest := 20000, 32000
	if first, ok := firstEphemeral(); ok && first < highest {
		highest = max(first, lowest+1000) // a machine that hands out nearly all: better one of those than none
	}
	for range tries {
		if r, err = reservePort(ctx, lowest+rand.IntN(highest-lowest)); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", lowest, highest, err)
}

// Nowhere returns an address, host:port, where nobody listens until the test ends.
func Nowhere(t testing.TB) string {
	t.Helper()
	r, err := reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.Addr()
}

// hangUp stops listening at once. Closing alone does not where a child process is about to be started: it has a copy of
// the socket until it runs its own program, and takes connections in meanwhile.
func hangUp(l net.Listener) error {
	socket, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = socket.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) }) // not everywhere possible
	}
	return errors.Join(err, l.Close())
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}
