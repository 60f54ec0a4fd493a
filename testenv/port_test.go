package testenv

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A port stays reserved before, while and after its holder listens.
func TestReserve_KeepsThePortForItsHolder(t *testing.T) {
	t.Parallel()
	r, err := reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	mine := func() {
		t.Helper()
		if other, err := reservePort(t.Context(), r.port); err == nil {
			_ = other.Close()
			t.Error("the port was given to somebody else")
		}
	}
	refused := func() {
		t.Helper()
		if conn, err := net.Dial("tcp", r.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				_ = conn.Close()
			}
			t.Errorf("Dial: %v, want connection refused", err)
		}
	}
	for range 3 {
		mine()
		refused()
		l, err := listen(t.Context(), r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		mine()
		conn, err := net.Dial("tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if err := hangUp(l); err != nil {
			t.Error(err)
		}
	}
}
