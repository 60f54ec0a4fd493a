package client

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://example.com/v1": "", "http://127.0.0.1:8080": "", "http://localhost:11434": "", "http://[::1]/": "",
		"https://10.1.2.3":   "",
		"http://example.com": "unencrypted", "http://10.1.2.3": "unencrypted",
		"http://localhost.example.com": "unencrypted",
		"ftp://example.com":            "expected https", "https://": "no host", "https://user:pass@example.com": "user",
		"https://example.com/#x":         "fragment",
		"https://169.254.169.254/latest": "metadata", "https://[fe80::1]/": "metadata",
		"https://[fd00:ec2::254]/":          "metadata",
		"https://[::ffff:169.254.169.254]/": "metadata", "https://[64:ff9b::a9fe:a9fe]/": "metadata",
		"https://0.0.0.0/":             "metadata",
		"https://" + "100.100.100.200": "metadata", "https://" + "168.63.129.16": "metadata", "https://[::]": "metadata",
		"https://[2002:a9fe:a9fe::]/": "metadata",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := (&Network{}).CheckURL(u)
		if (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, got, want)
		}
		if got != nil && strings.Contains(got.Error(), "pass@") {
			t.Errorf("%s: the password is in the message", text)
		}
	}
	open := &Network{HTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}}
	for _, text := range []string{"http://example.com", "http://169.254.169.254"} {
		u, _ := url.Parse(text)
		if err := open.CheckURL(u); err != nil {
			t.Errorf("%s is allowed: %v", text, err)
		}
	}
}

// TestNamesThatLeadWhereTheyShouldNot: each connection checks the address that a name resolves to, and uses that
// address.
func TestNamesThatLeadWhereTheyShouldNot(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for what, test := range map[string]struct {
		host  string
		addrs []string
		allow string
		ok    bool
	}{
		"localhost":                  {"localhost", []string{"127.0.0.1"}, "", true},
		"a public name to loopback":  {"api.example.com", []string{"127.0.0.1"}, "", false},
		"and allowed":                {"api.example.com", []string{"127.0.0.1"}, "127.0.0.0/8", true},
		"to metadata":                {"api.example.com", []string{"169.254.169.254"}, "", false},
		"to metadata in IPv6":        {"api.example.com", []string{"::ffff:169.254.169.254"}, "", false},
		"one good, one bad":          {"localhost", []string{"127.0.0.1", "169.254.169.254"}, "", false},
		"localhost to somebody else": {"localhost", []string{"10.0.0.1"}, "", false},
	} {
		n := &Network{}
		if test.allow != "" {
			n.Allow = []netip.Prefix{netip.MustParsePrefix(test.allow)}
		}
		d := &dialer{network: n, resolve: func(context.Context, string) ([]netip.Addr, error) {
			var addrs []netip.Addr
			for _, a := range test.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			return addrs, nil
		}}
		conn, err := d.dial(t.Context(), "tcp", net.JoinHostPort(test.host, port))
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", what, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// TestARefusedAddressIsAMatterForAPerson: a refused address is a configuration error, also by name, through the whole
// client.
func TestARefusedAddressIsAMatterForAPerson(t *testing.T) {
	t.Parallel()
	u, _ := url.Parse("https://metadata.example.com/v1")
	n := &Network{}
	d := &dialer{network: n, resolve: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	}}
	c := open(t, "openai", func(o *Options) { o.HTTP = &http.Client{Transport: &http.Transport{DialContext: d.dial}} }, u)
	_, err := c.Embed(t.Context(), sdk.Document, corpus(1))
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), "169.254.169.254") {
		t.Errorf("the address is not named: %v", err)
	}
}

// TestNoRedirectIsFollowed, not even to the same host.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/embeddings" {
			followed.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	u, _ := url.Parse(server.URL + "/v1")
	_, err := open(t, "openai", nil, u).Embed(t.Context(), sdk.Document, corpus(1))
	wantCode(t, err, codes.FailedPrecondition)
	if followed.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// secure starts a TLS server and returns its URL and a file with its certificate. If want is set, it requires that
// client certificate.
func secure(t *testing.T, s *remotetest.Server, want *x509.Certificate) (*url.URL, string) {
	t.Helper()
	s.Dims = dims
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if want != nil {
		pool := x509.NewCertPool()
		pool.AddCert(want)
		server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	}
	server.EnableHTTP2 = true
	return startTLS(t, server)
}

// startTLS starts a server and returns its URL and a file with its certificate.
func startTLS(t *testing.T, server *httptest.Server) (*url.URL, string) {
	t.Helper()
	server.StartTLS()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return u, writeFile(t, "ca.pem", string(ca))
}

// TestAServerThatEndsAStreamIsToldWithItsCode: with HTTP/2 a server may end a request or the connection. The error
// contains the code, and nothing else of the server's message.
func TestAServerThatEndsAStreamIsToldWithItsCode(t *testing.T) {
	t.Parallel()
	text := corpus(1)[0]
	for want, end := range map[string]func(f *http2.Framer, id uint32) error{
		"ended the request (HTTP/2: ENHANCE_YOUR_CALM)": func(f *http2.Framer, id uint32) error {
			return f.WriteRSTStream(id, http2.ErrCodeEnhanceYourCalm)
		},
		"ended the connection (HTTP/2 GOAWAY: INTERNAL_ERROR)": func(f *http2.Framer, id uint32) error {
			return f.WriteGoAway(id, http2.ErrCodeInternal, []byte(text))
		},
	} {
		s := &remotetest.Server{Dialect: "openai", Dims: dims}
		server := httptest.NewUnstartedServer(s)
		server.TLS = &tls.Config{NextProtos: []string{"h2"}}
		server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
				defer func() { _ = conn.Close() }()
				if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				f := http2.NewFramer(conn, conn)
				_ = f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if headers, is := frame.(*http2.HeadersFrame); is && end(f, headers.StreamID) != nil {
						return
					}
					if _, is := frame.(*http2.DataFrame); is && strings.Contains(want, "connection") {
						return
					}
				}
			},
		}
		u, ca := startTLS(t, server)
		_, err := over(t, &Network{CAFile: ca}, u).Embed(t.Context(), sdk.Document, []string{text})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// over makes a client over a network.
func over(t *testing.T, n *Network, urls ...*url.URL) *Client {
	t.Helper()
	client, err := n.Client(4)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, "openai", func(o *Options) { o.HTTP = client }, urls...)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "openai", Key: secret}
	u, ca := secure(t, s, nil)
	_, err := over(t, &Network{}, u).Embed(t.Context(), sdk.Document, corpus(1))
	wantCode(t, err, codes.FailedPrecondition) // an untrusted certificate
	wantVectors(t, s, corpus(5), mustEmbed(t, over(t, &Network{CAFile: ca}, u), corpus(5)))
	for what, n := range map[string]*Network{
		"no file": {CAFile: "/nowhere"}, "no certificate": {CAFile: writeFile(t, "x", "hello")}, "half a pair": {Cert: ca},
		"no pair": {Cert: ca, Key: ca}, "no proxy": {Proxy: "squid"},
	} {
		if _, err := n.Client(1); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// identity makes a certificate of a client and its key, as PEM.
func identity(t *testing.T) (cert *x509.Certificate, certPEM, keyPEM string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sidecar"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// Certificates of clients are short-lived in some companies: the files are read again for each new connection.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	cert, certPEM, keyPEM := identity(t)
	_, oldCertPEM, oldKeyPEM := identity(t)
	certFile, keyFile := writeFile(t, "cert.pem", oldCertPEM), writeFile(t, "key.pem", oldKeyPEM)
	s := &remotetest.Server{Dialect: "openai"}
	u, ca := secure(t, s, cert)
	_, err := over(t, &Network{CAFile: ca}, u).Embed(t.Context(), sdk.Document, corpus(1))
	if err == nil {
		t.Error("the server takes a client without a certificate: the test proves nothing")
	}
	c := over(t, &Network{CAFile: ca, Cert: certFile, Key: keyFile}, u)
	if _, err := c.Embed(t.Context(), sdk.Document, corpus(1)); err == nil {
		t.Error("the server takes another certificate: the test proves nothing")
	}
	for path, content := range map[string]string{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantVectors(t, s, corpus(5), mustEmbed(t, c, corpus(5)))
}

// TestProxy: requests go through the proxy, except those to excluded hosts, and it never sees key or text.
func TestProxy(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "openai", Key: secret}
	target, ca := secure(t, s, nil)
	target.Host = strings.Replace(target.Host, "127.0.0.1", "example.com", 1) // httptest's certificate is valid for it
	var (
		connects atomic.Int32
		tunnels  sync.WaitGroup
	)
	_, port, _ := net.SplitHostPort(target.Host)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" {
			t.Errorf("the proxy sees %s %s", r.Method, r.URL)
			return
		}
		connects.Add(1)
		up, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Error(err)
			return
		}
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 200 OK\r\n\r\n")
		_ = buffered.Flush()
		tunnels.Go(func() { join(up, down, buffered.Reader) })
	}))
	t.Cleanup(proxy.Close)
	c := over(t, &Network{CAFile: ca, Proxy: proxy.URL}, target)
	wantVectors(t, s, corpus(5), mustEmbed(t, c, corpus(5)))
	if connects.Load() == 0 {
		t.Error("nothing went through the proxy")
	}
	c.o.HTTP.CloseIdleConnections()
	tunnels.Wait()

	before := connects.Load()
	plain := &remotetest.Server{Dialect: "openai"}
	local := listen(t, plain) // loopback is reached without it
	wantVectors(t, plain, corpus(2), mustEmbed(t, over(t, &Network{Proxy: proxy.URL}, local), corpus(2)))
	direct, err := (&Network{CAFile: ca, Proxy: proxy.URL, NoProxy: "example.com"}).Client(4)
	if err != nil {
		t.Fatal(err)
	}
	excepted := open(t, "openai", func(o *Options) {
		o.HTTP, o.Timeout, o.Patience = direct, 300*time.Millisecond,
			300*time.Millisecond
	}, target)
	if _, err := excepted.Embed(t.Context(), sdk.Document, corpus(1)); err == nil {
		t.Error("a host that is excepted was reached without the proxy, where nobody listens")
	}
	if n := connects.Load() - before; n != 0 {
		t.Errorf("%d connections went through the proxy though it was not to be used", n)
	}
}

// TestProxyThatWantsAPassword: the proxy gets the password of its URL; without one, that is a configuration error.
func TestProxyThatWantsAPassword(t *testing.T) {
	t.Parallel()
	var given atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given.Store(r.Header.Get("Proxy-Authorization"))
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	target, _ := url.Parse("https://api.example.com/v1")
	for user, want := range map[string]string{"": "", "me:" + secret + "@": "Basic " +
		base64.StdEncoding.EncodeToString([]byte("me:"+secret))} {
		c := over(t, &Network{Proxy: strings.Replace(proxy.URL, "://", "://"+user, 1)}, target)
		_, err := c.Embed(t.Context(), sdk.Document, corpus(1))
		wantCode(t, err, codes.FailedPrecondition)
		if got := given.Load(); got != want {
			t.Errorf("the proxy was given %q, want %q", got, want)
		}
	}
}

// join copies in both directions until either side ends.
func join(up, down net.Conn, rest *bufio.Reader) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(up, rest); _ = up.Close() })
	both.Go(func() { _, _ = io.Copy(down, up); _ = down.Close() })
	both.Wait()
}
