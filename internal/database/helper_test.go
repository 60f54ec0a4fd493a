package database_test

import (
	"context"
	"io"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// slowly sets a long connection timeout: these tests are not about servers that hang for a while.
const slowly = "&connect_timeout=120"

func TestMain(m *testing.M) {
	// Which names exist depends on the machine's network. Here none do.
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go noNames(server)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	os.Exit(testenv.Main(m, goleak.IgnoreCurrent()))
}

// noNames answers every DNS query with NXDOMAIN.
func noNames(server net.PacketConn) {
	question := make([]byte, 512) //nolint:mnd // the maximum of DNS by UDP
	for {
		n, from, err := server.ReadFrom(question)
		if err != nil {
			return
		}
		if n > 3 {
			question[2] |= 0x80                       // a response
			question[3] = question[3]&0xf0 | 3        // NXDOMAIN
			_, _ = server.WriteTo(question[:n], from) // a client that is gone retries
		}
	}
}

// newDB makes a database that is dropped after the test and returns its URL as superuser.
func newDB(t *testing.T) string {
	t.Helper()
	return testenv.DB(t, testenv.Empty()).URL(testenv.Superuser) + slowly
}

// asciiDB is newDB for a SQL_ASCII database.
func asciiDB(t *testing.T) string {
	t.Helper()
	return testenv.DB(t, testenv.Encoding("SQL_ASCII")).URL(testenv.Superuser) + slowly
}

func pipe(dst io.Writer, src io.Reader) { _, _ = io.Copy(dst, src) }
