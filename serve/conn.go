package serve

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// maxFile bounds what is read of certificates, keys and tokens.
const maxFile = 1 << 20

// stamp tells one content of a file from another. Times would not do: two writes may fall into one tick of the file system's clock.
type stamp [sha256.Size]byte

// readStamped reads a small file.
func readStamped(path string) ([]byte, stamp, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, stamp{}, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, stamp{}, err
	}
	if len(data) > maxFile {
		return nil, stamp{}, fmt.Errorf("%s: more than %d bytes are too many", path, maxFile)
	}
	return data, sha256.Sum256(data), nil
}

// pair is a certificate with its key that is read again when its files change.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	stamps  [2]stamp // of the files as they were read
	failed  [2]stamp // of files that could not be used, when that was last told
	checked time.Time
}

func newPair(cert, key string, log *slog.Logger) (*pair, error) {
	if cert == "" || key == "" {
		return nil, errors.New("serve over TLS: a certificate and a key belong together")
	}
	p := &pair{cert: cert, key: key, log: log}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.loadLocked(); err != nil {
		return nil, fmt.Errorf("serve over TLS: %w", err)
	}
	return p, nil
}

// loadLocked reads both files, and returns what they hold if it cannot be used. Nothing happens if it is what is in use.
func (p *pair) loadLocked() (found [2]stamp, err error) {
	var data [2][]byte
	for i, path := range []string{p.cert, p.key} {
		if data[i], found[i], err = readStamped(path); err != nil {
			return found, fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
		}
	}
	if p.loaded != nil && found == p.stamps {
		return found, nil
	}
	loaded, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return found, fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
	}
	if p.loaded != nil {
		p.log.Info("certificate read again", "file", p.cert, "valid_until", loaded.Leaf.NotAfter)
	}
	p.loaded, p.stamps = &loaded, found
	if now := time.Now(); now.Before(loaded.Leaf.NotBefore) || now.After(loaded.Leaf.NotAfter) {
		p.log.Warn("clients refuse this certificate: it is not valid now", "file", p.cert, "valid_from", loaded.Leaf.NotBefore, "valid_until", loaded.Leaf.NotAfter)
	}
	return found, nil
}

// get is tls.Config's GetCertificate. Files that cannot be used, as in the middle of being replaced, leave the old pair in use.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) <= checkEvery {
		return p.loaded, nil
	}
	p.checked = time.Now()
	if found, err := p.loadLocked(); err != nil && found != p.failed {
		p.failed = found
		p.log.Error("certificate not read again: the one before stays in use", "error", err)
	}
	return p.loaded, nil
}
