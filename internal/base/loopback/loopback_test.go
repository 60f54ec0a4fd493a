package loopback_test

import (
	"net"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
)

func TestHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.0.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.com": false, "128.0.0.1": false, "0.0.0.0": false, "::": false, "127.1": false,
	} {
		if loopback.Host(host) != want {
			t.Errorf("Host(%q) = %v", host, !want)
		}
	}
}

func TestAddr(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "0.0.0.0:1": false, "[::]:1": false} {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		if err != nil || loopback.Addr(tcp) != want {
			t.Errorf("Addr(%s) = %v, %v", address, !want, err)
		}
	}
	if loopback.Addr(&net.UnixAddr{Name: "/tmp/x"}) {
		t.Error("a socket of the file system is taken for an address of the network")
	}
}
