package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	log       *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	stamps  [2]stamp // of the files as they were read
	failed  [2]stamp // of the files that could not be used, when that was last told
	checked time.Time
}

func newPair(cert, key string, log *slog.Logger) (*pair, error) {
	if cert == "" || key == "" {
		return nil, errors.New("serve over TLS: a certificate and a key belong together")
	}
	p := &pair{cert: cert, key: key, log: log}
	p.mu.Lock()
	defer p.mu.Unlock()
	stamps, err := p.stampsOf()
	if err == nil {
		err = p.loadLocked(stamps)
	}
	if err != nil {
		return nil, fmt.Errorf("serve over TLS: %w", err)
	}
	return p, nil
}

func (p *pair) stampsOf() (stamps [2]stamp, err error) {
	for i, path := range []string{p.cert, p.key} {
		if stamps[i], err = stampOf(path); err != nil {
			break
		}
	}
	return stamps, err
}

// loadLocked reads both files, which are as stamps say.
func (p *pair) loadLocked(stamps [2]stamp) error {
	loaded, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
	}
	p.loaded, p.stamps = &loaded, stamps
	if now := time.Now(); now.Before(loaded.Leaf.NotBefore) || now.After(loaded.Leaf.NotAfter) {
		p.log.Warn("clients refuse this certificate: it is not valid now", "file", p.cert, "valid_from", loaded.Leaf.NotBefore, "valid_until", loaded.Leaf.NotAfter)
	}
	return nil
}

// get is tls.Config's GetCertificate. Files that cannot be used, as in the middle of being replaced, leave the old pair in use.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) <= checkEvery {
		return p.loaded, nil
	}
	p.checked = time.Now()
	stamps, err := p.stampsOf()
	if err == nil {
		if stamps == p.stamps {
			return p.loaded, nil
		}
		if err = p.loadLocked(stamps); err == nil {
			p.log.Info("certificate read again", "file", p.cert, "valid_until", p.loaded.Leaf.NotAfter)
			return p.loaded, nil
		}
	}
	if stamps != p.failed {
		p.failed = stamps
		p.log.Error("certificate not read again: the one before stays in use", "error", err)
	}
	return p.loaded, nil
}
