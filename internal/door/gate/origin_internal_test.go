package gate

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestTrust_AnOriginOfAnotherScheme: with TLS, a page of the same host loaded without TLS is cross-origin. Behind a
// proxy that terminates TLS, with or without X-Forwarded-Proto, the program's own pages have an https origin.
func TestTrust_AnOriginOfAnotherScheme(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tls               bool
		forwarded, origin string
		site              string
		refused           bool
	}{
		{tls: true, origin: "https://tools.example"},
		{tls: true, origin: "http://tools.example", refused: true},
		{tls: true, origin: "http://tools.example", site: "cross-site", refused: true},
		{forwarded: "https", origin: "https://tools.example"},
		{forwarded: "https", origin: "http://tools.example", refused: true},
		{origin: "https://tools.example"}, // behind a proxy without the header
		{origin: "http://tools.example"},
		{origin: "https://other.example", refused: true},
		{origin: "https://tools.example:444", refused: true},
		{origin: "null", refused: true},
		{tls: true},
	} {
		for _, ofAPI := range []bool{true, false} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://tools.example/api/v1/pause", nil)
			if r.TLS = nil; c.tls {
				r.TLS = &tls.ConnectionState{}
			}
			for name, value := range map[string]string{
				"Origin": c.origin, "Sec-Fetch-Site": c.site, "X-Forwarded-Proto": c.forwarded,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if p := crossOrigin(r, ofAPI); (p != nil) != c.refused {
				t.Errorf("%+v: %v", c, p)
			}
		}
	}
}
