package serve

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// limited lets a connection above a number wait for one to end.
func limited(l net.Listener, conns int) net.Listener { return netutil.LimitListener(l, conns) }

// checkEvery is how often a file is looked at for changes, at most: once per question, and not for each.
const checkEvery = time.Second

// stamp tells one state of a file from another without reading it.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{at: info.ModTime(), size: info.Size()}, nil
}

// pair is a certificate with its key that is read again when its files change.
type pair struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	stamps  [2]stamp
	checked time.Time
}

func newPair(cert, key string) (*pair, error) {
	if cert == "" || key == "" {
		return nil, fmt.Errorf("serve over TLS: a certificate and a key belong together")
	}
	p := &pair{cert: cert, key: key}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.loadLocked()
}

func (p *pair) loadLocked() error {
	var stamps [2]stamp
	for i, path := range []string{p.cert, p.key} {
		var err error
		if stamps[i], err = stampOf(path); err != nil {
			return fmt.Errorf("serve over TLS: %w", err)
		}
	}
	if p.loaded != nil && stamps == p.stamps {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("serve over TLS: read certificate and key: %w", err)
	}
	p.loaded, p.stamps = &loaded, stamps
	return nil
}

// get is tls.Config's GetCertificate. Files that cannot be read, as in the middle of being replaced, leave the old pair in use.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) > checkEvery {
		p.checked = time.Now()
		_ = p.loadLocked()
	}
	return p.loaded, nil
}
