// Package loopback tells this machine from others.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Addr reports whether only this machine reaches an address that is listened on.
func Addr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Host reports whether a host, without its port, means this machine by itself: localhost, or a loopback address.
func Host(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
