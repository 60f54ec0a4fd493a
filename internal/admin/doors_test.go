package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/admin"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// from returns a connection to the listener that comes from an address of this machine.
func (f *fixture) from(address string) net.Conn {
	f.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.base, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTrust_BodiesOfStrangersCloseNothing: whoever has no token and sends bodies that do not end takes no place of
// those who have one, and of other strangers none either; and he does not wait for long.
func TestTrust_BodiesOfStrangersCloseNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ *fixture, o *admin.Options) {
		o.Pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "page for %s", r.PostFormValue("token"))
		})
	})
	held := make([]net.Conn, 300) // more than there may be connections
	for i := range held {
		held[i] = f.from("127.0.0.1")
		// One that goes beyond what an address may have is ended while it is written to.
		_, _ = io.WriteString(held[i], "POST /login HTTP/1.1\r\nHost: x\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nt")
	}
	signIn := func(address, body string) (int, string) {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return f.from(address), nil },
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.base+"/login", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		content, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(content)
	}
	testenv.Eventually(t, waitFor, func() (bool, string) {
		status, said := signIn("127.0.0.1", "token=x")
		return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable, said
	})
	gets[admin.Status](f, "operator", "/api/v1/status")
	if status, said := signIn("127.0.0.2", "token=x"); status != http.StatusOK || said != "page for x" {
		t.Errorf("another stranger: %d %s", status, said)
	}
	if status, said := signIn("127.0.0.2", "token="+strings.Repeat("x", 1<<16)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body of a stranger: %d %s", status, said)
	}
	testenv.Eventually(t, waitFor, func() (bool, string) { // none of those that are held has ended
		status, said := signIn("127.0.0.1", "token=x")
		return status == http.StatusOK, said
	})
}
