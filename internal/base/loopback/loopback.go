// Package loopback detects addresses of this machine.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Addr reports whether a listen address is reachable only from this machine.
func Addr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Host reports whether a host, without its port, is localhost or a loopback address.
func Host(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
