package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Inspection is one run of a plugin, for tools that examine plugins. It starts the plugin exactly as a Host does. It
// does not retry, limit calls or restart the plugin.
type Inspection struct {
	host *Host
	inst *instance
}

// Inspect starts a plugin. The errors are those of Host.Describe.
func Inspect(ctx context.Context, opts Options) (*Inspection, error) {
	h, err := New(opts)
	if err != nil {
		return nil, err
	}
	inst, err := h.slots[0].launch(ctx)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return &Inspection{host: h, inst: inst}, nil
}

// Client is the plugin's service. Its answers are not checked and its calls have no limits.
func (i *Inspection) Client() pluginpb.EmbedderClient { return i.inst.rpc }

// Conn is the connection under Client.
func (i *Inspection) Conn() grpc.ClientConnInterface { return i.inst.conn }

// Description is the plugin's description, as a Host reads it.
func (i *Inspection) Description() embed.Description { return i.inst.desc }

// Pid is the plugin's process id, which is also its process group id.
func (i *Inspection) Pid() int { return i.inst.process.pid }

// Memory is the resident memory of the plugin's processes in bytes; 0 if the system does not report it.
func (i *Inspection) Memory() int64 { return groupMemory(i.Pid()) }

// Socket is the path of the plugin's socket.
func (i *Inspection) Socket() string {
	hello, _ := i.inst.process.Hello()
	if parts := strings.Split(hello, "|"); len(parts) > 3 {
		return parts[3]
	}
	return ""
}

// Gone is closed when the plugin has ended and been reaped.
func (i *Inspection) Gone() <-chan struct{} { return i.inst.process.exited }

// Ending says how the plugin ended, with its last output. It is valid after Gone.
func (i *Inspection) Ending() string {
	state, _ := i.inst.process.ending()
	words := state.String()
	if last := i.inst.slot.out.Last(); len(last) > 0 {
		words += "; its last output: " + strings.Join(last, " / ")
	}
	return words
}

// Read checks an answer as a Host does and returns the results.
func (i *Inspection) Read(resp *pluginpb.EmbedResponse, d embed.Description, texts []string) ([]embed.Result, error) {
	b := batchOf(texts)
	results := make([]embed.Result, len(texts))
	if err := readAnswer(resp, d, b, results); err != nil {
		return nil, err
	}
	return results, nil
}

// ReadTokens checks an answer as a Host does.
func (i *Inspection) ReadTokens(resp *pluginpb.TokenizeResponse, texts []string) (embed.Tokens, error) {
	return readTokens(resp, texts)
}

// ReadScores checks an answer as a Host does.
func (i *Inspection) ReadScores(resp *pluginpb.RerankResponse, texts []string) ([]float32, error) {
	return readScores(resp, len(texts))
}

// CutLifeline closes the plugin's standard input, as the death of a host does.
func (i *Inspection) CutLifeline() error { return i.inst.process.stdin.Close() }

// Shutdown asks the plugin to exit and reports whether it did so in time.
func (i *Inspection) Shutdown(ctx context.Context, gracePeriod time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, gracePeriod)
	defer cancel()
	i.inst.process.blame("it was asked to end")
	// The error is ignored: some plugins exit before they answer.
	_ = i.Conn().Invoke(ctx, "/plugin.GRPCController/Shutdown", &pluginpb.HealthRequest{}, &pluginpb.HealthRequest{})
	select {
	case <-i.Gone():
		return true
	case <-ctx.Done():
		return false
	}
}

// Close kills the plugin if it still runs, and cleans up.
func (i *Inspection) Close() error {
	i.inst.process.kill("the inspection is over")
	waitExit(i.inst.process, exitTimeout)
	i.inst.client.Kill()
	return i.host.Close()
}

// clientCertKey is go-plugin's variable for the certificate of the host, as PEM.
const clientCertKey = "PLUGIN_CLIENT_CERT"

// NewCertificate makes a key and a certificate for one connection, also as PEM. It uses P-256: go-plugin's own AutoMTLS
// uses P-521, which gRPC for C++, Python, Ruby and PHP cannot verify.
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
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(30, 0, 0), // longer than a host runs
		IsCA: true, BasicConstraintsValid: true, // self-signed
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
