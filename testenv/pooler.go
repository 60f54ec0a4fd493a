package testenv

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler imitates PgBouncer with pool_mode = transaction: each transaction may run in another session, and unknown
// start-up parameters and replication are refused. It accepts every login.
type pooler struct {
	servers chan *pgconn.HijackedConn // free sessions
	clients sync.WaitGroup
}

// StartPooler opens a number of sessions at the URL of a role and shares them until the test's end. It returns the
// pooler's URL.
func StartPooler(t testing.TB, to string, sessions int) string {
	t.Helper()
	p := &pooler{servers: make(chan *pgconn.HijackedConn, sessions)}
	for range sessions {
		config, err := pgconn.ParseConfig(to)
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams = map[string]string{"datestyle": "ISO, MDY", "timezone": "UTC", "client_encoding": "UTF8"}
		conn, err := pgconn.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		hijacked, err := conn.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hijacked.Conn.Close() })
		p.servers <- hijacked
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close(); p.clients.Wait() })
	p.clients.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.clients.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = client.Close() })
				defer stop()
				defer func() { _ = client.Close() }()
				p.serve(ctx, client)
			})
		}
	})
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable"
	return u.String()
}

// greet answers a client's start-up; false ends the connection.
func greet(client net.Conn, backend *pgproto3.Backend) bool {
	for {
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return false
		}
		switch m := message.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := client.Write([]byte{'N'}); err != nil {
				return false
			}
		case *pgproto3.StartupMessage:
			known := " user database application_name client_encoding datestyle timezone standard_conforming_strings "
			for name := range m.Parameters {
				if !strings.Contains(known, " "+strings.ToLower(name)+" ") {
					backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " +
						name})
					_ = backend.Flush()
					return false
				}
			}
			backend.Send(&pgproto3.AuthenticationOk{})
			for name, value := range map[string]string{
				"server_encoding": "UTF8", "client_encoding": "UTF8",
				"standard_conforming_strings": "on", "server_version": "18.0",
			} {
				backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
			}
			backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			return backend.Flush() == nil
		default:
			return false // a request to cancel comes too late here
		}
	}
}

// serve passes a client's messages to a free session, which it keeps until the transaction ends.
func (p *pooler) serve(ctx context.Context, client net.Conn) {
	backend := pgproto3.NewBackend(client, client)
	if !greet(client, backend) {
		return
	}
	var server *pgconn.HijackedConn
	defer func() {
		if server != nil {
			_ = server.Conn.Close() // a session inside a transaction is closed with its client
		}
	}()
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		if _, over := message.(*pgproto3.Terminate); over {
			return
		}
		if server == nil {
			select {
			case server = <-p.servers:
			case <-ctx.Done():
				return
			}
		}
		server.Frontend.Send(message)
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		default:
			continue
		}
		if err := server.Frontend.Flush(); err != nil {
			return
		}
		for ready := false; !ready; {
			answer, err := server.Frontend.Receive()
			if err != nil {
				return
			}
			backend.Send(answer)
			if r, ok := answer.(*pgproto3.ReadyForQuery); ok {
				ready = true
				if r.TxStatus == 'I' {
					p.servers <- server
					server = nil
				}
			}
		}
		if err := backend.Flush(); err != nil {
			return
		}
	}
}
