package admin_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// TestListen_AsksForCertificates: with client certificates, a token alone is not enough; a request before the database
// is connected gets an error that says so.
func TestListen_AsksForCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair, cert, err := host.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	tokensFile := filepath.Join(dir, "tokens")
	secret, _, err := gate.CreateToken(tokensFile, "viewer", gate.Grant{Role: gate.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := gate.ReadTokens(tokensFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := gate.Options{
		Listen: "127.0.0.1:0", Tokens: tokens, Log: slog.New(slog.DiscardHandler), Cert: write("cert", cert),
		Key: write("key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})), ClientCA: write("none", nil),
	}
	service := admin.NewService(admin.ServiceOptions{
		Config: config.Default(), Log: slog.New(slog.DiscardHandler), Redact: strings.Clone,
		Snapshot: func() observe.Snapshot { return observe.Snapshot{} },
	})
	if _, err := admin.Listen(t.Context(), service, o); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("an empty file of authorities: %v", err)
	}
	o.ClientCA = o.Cert
	server, err := admin.Listen(t.Context(), service, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ask := func(mine ...tls.Certificate) (int, string, error) {
		known := x509.NewCertPool()
		known.AppendCertsFromPEM(cert)
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: known, Certificates: mine, ServerName: "localhost"},
		}
		defer transport.CloseIdleConnections()
		_, port, _ := net.SplitHostPort(server.Addr().String())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/api/v1/status", nil)
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = resp.Body.Close() }()
		content, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(content), err
	}
	if status, content, err := ask(); err == nil {
		t.Errorf("without a certificate: %d %s", status, content)
	}
	if status, content, err := ask(pair); status != http.StatusServiceUnavailable || !strings.Contains(content, `"starting"`) {
		t.Errorf("with one, and no database: %d %s %v", status, content, err)
	}
}
