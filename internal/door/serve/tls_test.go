package serve_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// pairOf makes a self-signed certificate for a host, with its key, both in PEM.
func pairOf(t *testing.T, serial int64, host string, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: host}, NotBefore: until.Add(-48 * time.Hour),
		NotAfter:    until,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		about.IPAddresses = []net.IP{ip}
	} else {
		about.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bare})
}

// logger writes a log that a test reads.
func logger(to *logs.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// secure is a server over TLS.
type secure struct {
	*server

	cert, key string
	log       logs.Buffer
}

func startTLS(t *testing.T, cert, key []byte) *secure {
	t.Helper()
	dir := t.TempDir()
	s := &secure{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	write(t, s.cert, string(cert))
	write(t, s.key, string(key))
	s.server = start(t, func(o *serve.Options) {
		o.Cert, o.Key, o.Log = s.cert, s.key, logger(&s.log)
	})
	return s
}

// get sends a request over a new connection that trusts a certificate, and returns the serial number of the server's
// certificate.
func (s *secure) get(trusted []byte, most uint16) (serial int64, err error) {
	s.t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		s.t.Fatal("no certificate to trust")
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs:    roots,
		MinVersion: tls.VersionTLS10, MaxVersion: most,
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.addr+"/v1/models", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		s.t.Errorf("%s, %v", response.Status, err)
	}
	return response.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestTLS_WhatClientsAccept(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(24 * time.Hour)
	cert, key := pairOf(t, 1, "127.0.0.1", later)
	s := startTLS(t, cert, key)
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		if serial, err := s.get(cert, version); err != nil || serial != 1 {
			t.Errorf("%s: certificate %d, %v", tls.VersionName(version), serial, err)
		}
	}
	if _, err := s.get(cert, tls.VersionTLS11); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
	other, _ := pairOf(t, 2, "127.0.0.1", later)
	var unknown *tls.CertificateVerificationError
	if _, err := s.get(other, 0); !errors.As(err, &unknown) {
		t.Errorf("a certificate nobody trusts: %v", err)
	}
	if a := s.do("GET", "/v1/models", ""); a.status != http.StatusBadRequest || !bytes.Contains(a.body, []byte("HTTPS")) {
		t.Errorf("asked without TLS: %d %s", a.status, a.body)
	}

	cert, key = pairOf(t, 3, "elsewhere.example", later)
	var host x509.HostnameError
	if _, err := startTLS(t, cert, key).get(cert, 0); !errors.As(err, &host) {
		t.Errorf("a certificate of another host: %v", err)
	}
	cert, key = pairOf(t, 4, "127.0.0.1", time.Now().Add(-time.Hour))
	over := startTLS(t, cert, key)
	var invalid x509.CertificateInvalidError
	if _, err := over.get(cert, 0); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("a certificate that is over: %v", err)
	}
	if !strings.Contains(over.log.String(), "not valid now") {
		t.Errorf("the log does not tell that it is over: %s", over.log.String())
	}
}

func TestTLS_FilesThatAreReplacedAreReadAgain(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(24 * time.Hour)
	cert, key := pairOf(t, 1, "127.0.0.1", later)
	s := startTLS(t, cert, key)
	if serial, err := s.get(cert, 0); err != nil || serial != 1 {
		t.Fatalf("certificate %d, %v", serial, err)
	}
	nextCert, nextKey := pairOf(t, 2, "127.0.0.1", later)
	write(t, s.cert, string(nextCert)) // its key follows later
	testenv.Eventually(t, timeout, func() (bool, string) {
		if serial, err := s.get(cert, 0); err != nil || serial != 1 {
			t.Fatalf("between the certificate and its key: certificate %d, %v", serial, err)
		}
		return strings.Contains(s.log.String(), "stays in use"), "the log does not tell"
	})
	write(t, s.key, string(nextKey))
	both := append(append([]byte{}, cert...), nextCert...)
	testenv.Eventually(t, timeout, func() (bool, string) {
		serial, err := s.get(both, 0)
		if err != nil {
			t.Fatal(err)
		}
		return serial == 2, s.log.String()
	})
}

// Either file missing alone, repeatedly: each time, the missing file and its return are reported once, from the first
// time on.
func TestTLS_FilesThatAreMissingAreToldOnce(t *testing.T) {
	t.Parallel()
	cert, key := pairOf(t, 1, "127.0.0.1", time.Now().Add(24*time.Hour))
	s := startTLS(t, cert, key)
	for i, path := range []string{s.cert, s.key, s.cert} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		told, mended := strings.Count(s.log.String(), "open "+path), strings.Count(s.log.String(), "is valid again")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, timeout, func() (bool, string) {
			if serial, err := s.get(cert, 0); err != nil || serial != 1 {
				t.Fatalf("%d: without %s: certificate %d, %v", i, path, serial, err)
			}
			return strings.Count(s.log.String(), "open "+path) > told, "the log does not tell of " + path
		})
		write(t, path, string(content))
		testenv.Eventually(t, timeout, func() (bool, string) {
			if serial, err := s.get(cert, 0); err != nil || serial != 1 {
				t.Fatalf("%d: %s is back: certificate %d, %v", i, path, serial, err)
			}
			return strings.Count(s.log.String(), "is valid again") == mended+1, "the log does not tell that it is mended"
		})
		if got := strings.Count(s.log.String(), "open "+path); got != told+1 {
			t.Errorf("%d: %s was told %d times, want once more than %d", i, path, got, told)
		}
	}
}

func TestTLS_FilesThatAreOfNoUse(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(24 * time.Hour)
	cert, key := pairOf(t, 1, "127.0.0.1", later)
	_, other := pairOf(t, 2, "127.0.0.1", later)
	locked := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("of no use")})
	for name, c := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"no certificate in it":     {[]byte("nonsense"), key, "certificate"},
		"no key in it":             {cert, nil, "key"},
		"the key of another":       {cert, other, "does not match"},
		"a key with a passphrase":  {cert, locked, "key"},
		"the files are exchanged":  {key, cert, "certificate"},
		"a key that is not there":  {cert, []byte("remove"), "no such file"},
		"only one of them is told": {cert, []byte("untold"), "belong together"},
	} {
		dir := t.TempDir()
		o := serve.Options{Backend: &backend{}, Options: gate.Options{
			Listen: "127.0.0.1:0", Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		}}
		write(t, o.Cert, string(c.cert))
		write(t, o.Key, string(c.key))
		switch string(c.key) {
		case "remove":
			if err := os.Remove(o.Key); err != nil {
				t.Fatal(err)
			}
		case "untold":
			o.Key = ""
		}
		s, err := serve.Listen(t.Context(), o)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || o.Key != "" && !strings.Contains(err.Error(), o.Key) {
			t.Errorf("%s: %v, want %q and the name of the file", name, err, c.want)
		}
	}

	// A certificate authenticates the server, not the client.
	dir := t.TempDir()
	o := serve.Options{Backend: &backend{}, Options: gate.Options{
		Listen: "0.0.0.0:0", Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
	}}
	write(t, o.Cert, string(cert))
	write(t, o.Key, string(key))
	var open *gate.OpenError
	if _, err := serve.Listen(t.Context(), o); !errors.As(err, &open) {
		t.Errorf("over TLS without tokens, for everybody: %v", err)
	}
}

// The server closes a connection whose handshake never ends.
func TestTLS_ASlowHandshakeEnds(t *testing.T) {
	t.Parallel()
	cert, key := pairOf(t, 1, "127.0.0.1", time.Now().Add(24*time.Hour))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "cert.pem"), string(cert))
	write(t, filepath.Join(dir, "key.pem"), string(key))
	s := start(t, func(o *serve.Options) {
		o.Cert, o.Key, o.Limits = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
			gate.Limits{Header: 200 * time.Millisecond}
	})
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}
