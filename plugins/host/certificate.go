package host

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// clientCertKey is go-plugin's: the certificate of the host, as PEM.
const clientCertKey = "PLUGIN_CLIENT_CERT"

// NewCertificate makes a key and a certificate for one connection, also as PEM. Its curve is P-256: go-plugin's own
// AutoMTLS takes P-521, which gRPC for C++, Python, Ruby and PHP cannot verify.
func NewCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost", Organization: []string{"embedsidecar"}},
		DNSNames:  []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(30, 0, 0), // as long as a host may run
		IsCA: true, BasicConstraintsValid: true, // it is its own authority
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), nil
}
