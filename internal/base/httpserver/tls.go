package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// secured returns how a listener shows its certificate, whose files are read again when they change, and which
// certificates it wants of clients; nil: plain HTTP.
func secured(o *Options) (*tls.Config, error) {
	switch {
	case o.Cert == "" && o.Key == "" && o.ClientCA != "":
		return nil, errors.New("certificates of clients need one of the server's")
	case o.Cert == "" && o.Key == "":
		return nil, nil
	case o.Cert == "" || o.Key == "":
		return nil, errors.New("a certificate and a key belong together")
	}
	pair := &Files[*tls.Certificate]{Paths: []string{o.Cert, o.Key}, Log: o.Log}
	pair.Parse = func(content [][]byte) (*tls.Certificate, error) {
		found, err := tls.X509KeyPair(content[0], content[1])
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and key %s: %w", o.Cert, o.Key, err)
		}
		if now := time.Now(); now.Before(found.Leaf.NotBefore) || now.After(found.Leaf.NotAfter) {
			o.Log.Warn("clients refuse this certificate: it is not valid now", "file", o.Cert, "valid_from",
				found.Leaf.NotBefore, "valid_until", found.Leaf.NotAfter)
		}
		return &found, nil
	}
	if err := pair.Load(); err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Now(), nil },
	}
	if o.ClientCA == "" {
		return config, nil
	}
	pem, err := readSmall(o.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM: no client could come in", o.ClientCA)
	}
	return config, nil
}
