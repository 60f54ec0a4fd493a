package conformance_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

// fake is the path of the fake plugin, built once for all tests.
var fake string

// bareKey makes the test binary a plugin without the SDK, with the faults that its value names.
const bareKey = "CONFORMANCE_TEST_BARE"

func TestMain(m *testing.M) {
	if vices, ok := os.LookupEnv(bareKey); ok {
		if err := beBare(vices); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(program.Build("../fake", "embedsidecar-fake", func(path string) int { fake = path; return m.Run() }))
}

// lengths is an embedder in four lines.
type lengths struct{}

func (lengths) Describe(context.Context) (sdk.Info, error) {
	return sdk.Info{Name: "bare", Version: "1", Models: []sdk.Model{{
		Name: "lengths", Fingerprint: "lengths:1", Dims: 2,
		Symmetric: true, Deterministic: true,
	}}}, nil
}

func (lengths) Embed(_ context.Context, _ string, _ sdk.Kind, texts []string) ([]sdk.Answer, error) {
	answers := make([]sdk.Answer, len(texts))
	for i, text := range texts {
		answers[i] = sdk.Answer{
			Vector: []float32{float32(len(text)), float32(strings.Count(text, "e") + 1)},
			Empty:  text == "",
		}
	}
	return answers, nil
}

// beBare does the handshake by hand, without go-plugin, as a plugin in another language does.
func beBare(vices string) error {
	has := func(vice string) bool { return strings.Contains(vices, vice) }
	if os.Getenv(pluginpb.MagicCookieKey) != pluginpb.MagicCookieValue && !has("no-cookie") {
		if has("silent") {
			os.Exit(1)
		}
		if has("all-is-well") {
			os.Exit(0)
		}
		return fmt.Errorf("this is a plugin of embedsidecar")
	}
	version := "1"
	if offered := os.Getenv("PLUGIN_PROTOCOL_VERSIONS"); offered != "1" && offered != "" {
		if !has("any-version") {
			return fmt.Errorf("version %s is not known", offered)
		}
		version = offered
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientCAs:    x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	config.ClientCAs.AppendCertsFromPEM([]byte(os.Getenv("PLUGIN_CLIENT_CERT")))
	if has("open") {
		config.ClientAuth = tls.NoClientCert
	}
	socket := fmt.Sprintf("@conformance-%d", os.Getpid()) // if no folder is given
	if dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR"); dir != "" {
		socket = filepath.Join(dir, "bare")
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		os.Exit(0)
	}()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxRecvMsgSize(pluginpb.MaxMessageBytes))
	if has("small") {
		server = grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	}
	pluginpb.RegisterEmbedderServer(server, sdk.NewServer(lengths{}, os.Stderr))
	fmt.Printf("1|%s|unix|%s|grpc|%s\n", version, socket, base64.RawStdEncoding.EncodeToString(der))
	return server.Serve(listener)
}
