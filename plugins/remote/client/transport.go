package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
)

// Network says how to reach servers, and which addresses are allowed.
type Network struct {
	Proxy   string         // URL of a proxy; "": none
	NoProxy string         // hosts, domains and networks without the proxy
	CAFile  string         // further certificate authorities, PEM
	Cert    string         // client certificate, PEM; with Key
	Key     string         // its key, PEM
	Allow   []netip.Prefix // addresses to allow that are refused by default
	HTTP    bool           // allow http:// to other machines
}

// Refused addresses: cloud metadata services, which give credentials to any client, and similar ones.
var refused = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("ff00::/8"),
	// IPv4 addresses embedded in IPv6
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// addressError says that an address is not allowed. It lasts until the configuration changes.
type addressError struct {
	host string
	addr netip.Addr
	why  string
}

func (e *addressError) Error() string {
	if e.addr.IsValid() && e.addr.String() != e.host {
		return fmt.Sprintf("%s is %s, %s", e.host, e.addr, e.why)
	}
	return fmt.Sprintf("%s: %s", e.host, e.why)
}

// CheckURL checks a URL without using the network.
func (n *Network) CheckURL(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q: expected https:// or http://", u.Redacted())
	case host == "":
		return fmt.Errorf("%q has no host", u.Redacted())
	case u.User != nil:
		return fmt.Errorf("%q contains a user: set the key by its own setting", u.Redacted())
	case u.Fragment != "":
		return fmt.Errorf("%q has a fragment", u.Redacted())
	case u.Scheme == "http" && !n.HTTP && !loopback.Host(host):
		return fmt.Errorf("%q: http:// sends texts and key unencrypted and is only allowed for this machine: use https://, or allow it", u.Redacted())
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return n.check(host, addr)
	}
	return nil
}

// check returns an error unless the host name may connect to the address.
func (n *Network) check(host string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch {
	case slices.ContainsFunc(n.Allow, in):
		return nil
	case slices.ContainsFunc(refused, in):
		return &addressError{
			host, addr,
			"which is link-local, a metadata service, or no address of one server: it is refused unless it is allowed by name",
		}
	case addr.IsLoopback() != loopback.Host(host):
		return &addressError{
			host, addr,
			"though one of the two is this machine and the other is not: it is refused unless the address is allowed",
		}
	}
	return nil
}

// dialer resolves names itself, and connects to the address that it has checked.
type dialer struct {
	network *Network
	proxy   string // host:port of the proxy, whose address is not checked
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dialer  net.Dialer
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address == d.proxy {
		return d.dialer.DialContext(ctx, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%s has no address", host)
	for _, addr := range addrs {
		if bad := d.network.check(host, addr); bad != nil {
			return nil, bad // one refused address makes the whole name untrusted
		}
	}
	for _, addr := range addrs {
		var conn net.Conn
		if conn, err = d.dialer.DialContext(ctx, network, net.JoinHostPort(addr.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

var errProxyAuth = errors.New("the proxy requires a user and a password: http://USER:PASSWORD@HOST:PORT")

// Client returns an HTTP client that keeps up to conns idle connections to each host and follows no redirect.
func (n *Network) Client(conns int) (*http.Client, error) {
	d := &dialer{network: n, resolve: lookup, dialer: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}}
	t := &http.Transport{
		DialContext: d.dial, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: conns, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if n.Proxy != "" {
		u, err := url.Parse(n.Proxy)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("the proxy is not a URL of the form http://HOST:PORT")
		}
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		d.proxy = net.JoinHostPort(u.Hostname(), port)
		decide := (&httpproxy.Config{HTTPProxy: n.Proxy, HTTPSProxy: n.Proxy, NoProxy: n.NoProxy}).ProxyFunc()
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusProxyAuthRequired {
				return errProxyAuth
			}
			return nil
		}
		t.Proxy = func(r *http.Request) (*url.URL, error) { return decide(r.URL) }
	}
	var err error
	if t.TLSClientConfig, err = n.tls(); err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (n *Network) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if n.CAFile != "" {
		pem, err := os.ReadFile(n.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities: %w", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authorities: %s contains no certificate in PEM form", n.CAFile)
		}
	}
	if (n.Cert == "") != (n.Key == "") {
		return nil, errors.New("a client certificate and its key belong together: one of them is missing")
	}
	if n.Cert != "" {
		pair, err := tls.LoadX509KeyPair(n.Cert, n.Key)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if now, err := tls.LoadX509KeyPair(n.Cert, n.Key); err == nil { // they may have been replaced
				return &now, nil
			}
			return &pair, nil
		}
	}
	return c, nil
}
