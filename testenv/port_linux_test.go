package testenv

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A socket of which a forked child still has a copy accepts no more connections.
func TestHangUp_EndsCopiesOfTheSocket(t *testing.T) {
	t.Parallel()
	l, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = copied.Close() }()
	if err := hangUp(l); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			_ = conn.Close()
		}
		t.Errorf("Dial: %v, want connection refused", err)
	}
	again, err := listen(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
