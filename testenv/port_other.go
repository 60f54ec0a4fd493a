//go:build unix && !linux

package testenv

import (
	"context"
	"net"
	"strconv"
)

// reservePort only checks that the port is free: on other systems a bound socket would also block its holder.
func reservePort(ctx context.Context, port int) (*reservation, error) {
	l, err := listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return &reservation{port: port, free: func() error { return nil }}, hangUp(l)
}

func firstEphemeral() (port int, ok bool) { return 0, false }
