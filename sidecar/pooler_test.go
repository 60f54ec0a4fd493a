package sidecar_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/embedsidecar/embedsidecar/database"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/setup"
	"github.com/embedsidecar/embedsidecar/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// pooler does to clients what PgBouncer does with pool_mode = transaction: each transaction may run in another session, start-up
// parameters it does not know are refused, and so is replication. Anybody may log in.
type pooler struct {
	t       *testing.T
	url     string
	servers chan *pgconn.HijackedConn // free sessions
	clients sync.WaitGroup
}

// startPooler opens a number of sessions of a role and shares them.
func startPooler(t *testing.T, to string, sessions int) *pooler {
	t.Helper()
	p := &pooler{t: t, servers: make(chan *pgconn.HijackedConn, sessions)}
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
	p.url = u.String()
	return p
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
					backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
					_ = backend.Flush()
					return false
				}
			}
			backend.Send(&pgproto3.AuthenticationOk{})
			for name, value := range map[string]string{"server_encoding": "UTF8", "client_encoding": "UTF8", "standard_conforming_strings": "on", "server_version": "18.0"} {
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

// serve passes a client's messages to whichever session is free, and keeps it until the transaction ends.
func (p *pooler) serve(ctx context.Context, client net.Conn) {
	backend := pgproto3.NewBackend(client, client)
	if !greet(client, backend) {
		return
	}
	var server *pgconn.HijackedConn
	defer func() {
		if server != nil {
			_ = server.Conn.Close() // in mid-transaction: it goes with the client
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

func TestPooler_TransactionsInAnySession(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		r := newRig(t, db, spec("docs", "body"))
		r.edit("before ")
		// Through a role that lacks the settings as defaults nothing is touched, and no application's role is to be changed.
		_, err := database.Connect(t.Context(), startPooler(t, db.URL(testenv.Owner), 1).url, database.Options{})
		var refused *database.Error
		if !errors.As(err, &refused) || refused.Kind != database.Pooler || strings.Contains(strings.Join(refused.Hint, " "), "ALTER ROLE") {
			t.Fatalf("got %v, want an error of kind pooler, and a hint on a role of its own", err)
		}
		p := startPooler(t, r.url, 3)
		r.options = func(o *sidecar.Options) {
			pool := connect(t, p.url, 8) // the direct pool of the rig stays for the streamer
			if !database.Pooled(pool) {
				t.Error("the pool does not know that it is pooled")
			}
			o.Pool, o.DrainTimeout = pool, time.Hour
			o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) { return setup.Load(ctx, pool, r.slot) }
		}
		s, stop := r.start()
		r.settle()
		for _, word := range []string{"one ", "two ", "three "} {
			r.edit(word)
			r.settle()
		}
		db.MustExec(`TRUNCATE docs`)
		r.edit("four ")
		r.settle()
		r.verify()
		if n := s.States()[0].Worker.Fenced.Load() + s.States()[0].Worker.Failed.Load(); n != 0 {
			t.Errorf("%d tasks failed or were lost", n)
		}
		// A hidden row is no deleted one here either.
		db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		db.MustExec(`UPDATE docs SET body = 'hidden ' || id`)
		reason(t, s, "docs", "row-level security")
		if n := r.count(vectors(spec("docs"))); n != 43 {
			t.Errorf("%d vectors while the rows are hidden, want 43", n)
		}
		stop() // which waits for no batch: what is hidden is not in work
	})
}

// TestP4_ThroughAPooler: a write-back that waits for a user gives way after half a second there, too. What the session was told when it was
// made is lost, and without it a user who then waits for us is the one whose transaction the server ends.
func TestP4_ThroughAPooler(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`ALTER TABLE docs ADD embedding vector(8)`)
	db.MustExec(`CREATE TABLE counters (id int PRIMARY KEY, n int)`)
	db.MustExec(`INSERT INTO counters VALUES (1, 0)`)
	db.MustExec(`CREATE FUNCTION counting() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN UPDATE public.counters SET n = n + 1; RETURN NULL; END $$`)
	db.MustExec(`CREATE TRIGGER counting AFTER UPDATE OF embedding ON docs FOR EACH ROW EXECUTE FUNCTION counting()`)
	r := newRig(t, db, column("docs", "body"))
	db.MustExecSuper(`ALTER ROLE ` + r.role + ` RESET lock_timeout`) // so that nothing but the transaction itself says it
	p := startPooler(t, r.url, 3)
	r.options = func(o *sidecar.Options) {
		pool := connect(t, p.url, 8)
		o.Pool, o.DrainTimeout = pool, time.Hour
		o.Load = func(ctx context.Context) ([]pipeline.Pipeline, error) { return setup.Load(ctx, pool, r.slot) }
	}
	user := r.locking(`UPDATE counters SET n = 0`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	s, _ := r.start()
	// However long the user holds his row: the write-back waits for him, gives way, and comes again.
	testenv.Eventually(t, patience, func() (bool, string) {
		states := s.States()
		if len(states) == 0 || states[0].Worker == nil {
			return false, "no worker"
		}
		postponed := r.count(`SELECT count(*) FROM embedsidecar.task WHERE error_code = 'locked'`)
		return postponed > 0, "the write-back waits for the user's transaction"
	})
	// The user's own change of the row meets nobody who waits for him for longer than that.
	if _, err := user.Exec(t.Context(), `UPDATE docs SET body = 'two' WHERE id = 1`); err != nil {
		t.Fatalf("the user's transaction was ended: %v", err)
	}
	if err := user.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.verify()
}
