package serve

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEvery is how often a file is looked at for changes, at most: once per question, and not for each.
const checkEvery = time.Second

// maxFile bounds what is read of certificates, keys and tokens.
const maxFile = 1 << 20

// stamp tells one content of a file from another. Times would not do: two writes may fall into one tick of the file
// system's clock.
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

// tell logs what a look at a file came to, once for each thing that is wrong with it and once when nothing is any
// more. It returns what is wrong now.
func tell(log *slog.Logger, before string, err error, path string) (wrong string) {
	if err != nil {
		wrong = err.Error()
	}
	switch {
	case log == nil || wrong == before:
	case wrong != "":
		log.Error("file not read again: what it held before stays in use", "file", path, "error", err)
	default:
		log.Info("file can be read again", "file", path)
	}
	return wrong
}

// pair is a certificate with its key that is read again when its files change.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	stamps  [2]stamp // of the files in use
	wrong   string   // what is wrong with the files since an earlier look, as it was told; "": nothing
	checked time.Time
}

// TLS returns how a listener shows a certificate, whose files are read again when they change.
func TLS(cert, key string, log *slog.Logger) (*tls.Config, error) {
	p, err := newPair(cert, key, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get, NextProtos: []string{"http/1.1"}}, nil
}

func newPair(cert, key string, log *slog.Logger) (*pair, error) {
	if cert == "" || key == "" {
		return nil, errors.New("serve over TLS: a certificate and a key belong together")
	}
	p := &pair{cert: cert, key: key, log: log}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.loadLocked(); err != nil {
		return nil, fmt.Errorf("serve over TLS: %w", err)
	}
	return p, nil
}

// loadLocked reads both files. Nothing happens if they hold what is in use.
func (p *pair) loadLocked() (err error) {
	var data [2][]byte
	var found [2]stamp
	for i, path := range []string{p.cert, p.key} {
		if data[i], found[i], err = readStamped(path); err != nil {
			return fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
		}
	}
	if p.loaded != nil && found == p.stamps {
		return nil
	}
	loaded, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
	}
	if p.loaded != nil {
		p.log.Info("certificate read again", "file", p.cert, "valid_until", loaded.Leaf.NotAfter)
	}
	p.loaded, p.stamps = &loaded, found
	if now := time.Now(); now.Before(loaded.Leaf.NotBefore) || now.After(loaded.Leaf.NotAfter) {
		p.log.Warn("clients refuse this certificate: it is not valid now", "file", p.cert, "valid_from",
			loaded.Leaf.NotBefore, "valid_until", loaded.Leaf.NotAfter)
	}
	return nil
}

// get is tls.Config's GetCertificate. Files that cannot be used, as in the middle of being replaced, leave the old
// pair in use.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) <= checkEvery {
		return p.loaded, nil
	}
	p.checked = time.Now()
	p.wrong = tell(p.log, p.wrong, p.loadLocked(), p.cert)
	return p.loaded, nil
}
