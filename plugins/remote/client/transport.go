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

// Network says how servers are reached, and which may be reached at all.
type Network struct {
	Proxy   string         // URL of a proxy; "": none
	NoProxy string         // hosts, domains and networks that are reached without it
	CAFile  string         // further certificate authorities, PEM
	Cert    string         // client certificate, PEM; with Key
	Key     string         // its key, PEM
	Allow   []netip.Prefix // addresses that are allowed though they are refused otherwise
	HTTP    bool           // http:// to other machines is allowed
}

// Addresses that nobody embeds at: metadata services of clouds give out credentials there to anyone who asks.
var refused = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("ff00::/8"),
	// IPv4 in disguise
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// addressError says that an address must not be called. It lasts until a person changes something.
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

// CheckURL tells what is wrong with a URL that can be seen without the network.
func (n *Network) CheckURL(u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q: expected https:// or http://", u.Redacted())
	case host == "":
		return fmt.Errorf("%q has no host", u.Redacted())
	case u.User != nil:
		return fmt.Errorf("%q holds a user: give the key by its own setting", u.Redacted())
	case u.Fragment != "":
		return fmt.Errorf("%q has a fragment", u.Redacted())
	case u.Scheme == "http" && !n.HTTP && !loopback.Host(host):
		return fmt.Errorf("%q: http:// sends texts and key in the clear, which is only taken for this machine: use https://, or allow it", u.Redacted())
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return n.check(host, addr)
	}
	return nil
}

// check reports whether an address may be called under this name.
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

// dialer resolves names itself, and connects to the very address that it has checked.
type dialer struct {
	network *Network
	proxy   string // host:port of the proxy, which may be anywhere
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
			return nil, bad // a name with one forbidden address is not to be trusted with its others
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

var errProxyAuth = errors.New("the proxy wants a user and a password: http://USER:PASSWORD@HOST:PORT")

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
			return nil, errors.New("the proxy is no URL of the form http://HOST:PORT")
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
			return nil, fmt.Errorf("read certificate authorities: %s holds no certificate in PEM form", n.CAFile)
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
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
