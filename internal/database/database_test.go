package database_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// awkward prints one value of each kind whose text depends on session settings.
const awkward = `SELECT (timestamptz '2024-01-02 03:04:05+05')::text, (date '2024-02-01')::text,
	(interval '1 day 2 hours')::text,
	(0.1::float8 + 0.2)::text, ('\x01ff'::bytea)::text, current_setting('search_path'), current_setting('row_security')`

var awkwardText = []string{
	"2024-01-01 22:04:05+00", "2024-02-01", "1 day 02:00:00", "0.30000000000000004", `\x01ff`,
	"pg_catalog, pg_temp", "off",
}

// spoil sets wrong database defaults for all our settings.
func spoil(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, set := range []string{
		"datestyle = 'SQL, DMY'", "timezone = 'Asia/Tokyo'", "intervalstyle = 'iso_8601'", "extra_float_digits = -10",
		"bytea_output = 'escape'", "client_encoding = 'LATIN1'", "search_path = 'public'", "row_security = on",
	} {
		if _, err := pool.Exec(t.Context(),
			"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ', current_database()) || $set$"+set+
				"$set$; END $$"); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := database.Connect(t.Context(), dsn, database.Options{
		ApplicationName: "test", MaxConns: 2,
		IdleInTransaction: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestConnect_AThriftyPoolKeepsWhatIsUsed: unused connections are closed, and those in use continue.
func TestConnect_AThriftyPoolKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	dsn := newDB(t)
	pool, err := database.Connect(t.Context(), dsn, database.Options{Thrifty: true, ApplicationName: "thrifty"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	acquire := func() *pgxpool.Conn {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	a, b := acquire(), acquire()
	pid := a.Conn().PgConn().PID()
	b.Release()
	others := connect(t, dsn)
	left := func(want int) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, func() (bool, string) { // sooner than other pools check
			n := 0
			err := others.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thrifty' "+
				"AND datname = current_database()").Scan(&n)
			return n == want, fmt.Sprintf("%d sessions are left, want %d: %v", n, want, err)
		})
	}
	left(1)
	if err := a.Ping(t.Context()); err != nil || a.Conn().PgConn().PID() != pid {
		t.Errorf("the one in use: %v", err)
	}
	a.Release()
	left(0)
	acquire().Release()
}

// TestP1_APasswordThatIsChangedIsReadAgain: from the password file, and from the file of the connection string.
// Sessions that are open continue; the next one needs the new password.
func TestP1_APasswordThatIsChangedIsReadAgain(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	at, err := pgconn.ParseConfig(db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	role := db.Role("REPLICATION")
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := fmt.Sprintf("host=%s port=%d dbname=%s user=%s connect_timeout=120 ", at.Host, at.Port, at.Database, role)
	renewed := func(dsn string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			return dsn
		}
		return strings.TrimSpace(string(text))
	}
	for i, c := range []struct {
		dsn, line string // of the password file, or the connection string
		renew     func(string) string
	}{
		{address + "passfile=" + file, "*:*:*:*:%s", nil},
		{address + "password=old", address + "password=%s", renewed},
	} {
		password := "old"
		db.MustExecSuper("ALTER ROLE " + role + " PASSWORD 'old'")
		write(fmt.Sprintf(c.line, password))
		o := database.Options{Renew: c.renew}
		pool, err := database.Connect(t.Context(), c.dsn, o)
		if err != nil {
			t.Fatal(err)
		}
		password = fmt.Sprint("new", i)
		db.MustExecSuper("ALTER ROLE " + role + " PASSWORD '" + password + "'")
		write(fmt.Sprintf(c.line, password))
		pool.Reset()
		if err := pool.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		pool.Close()
		conn, err := database.ConnectReplication(t.Context(), c.dsn, o)
		if err != nil {
			t.Error(err)
		} else if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConnect_PrintsAlikeWhateverTheDefaults(t *testing.T) {
	t.Parallel()
	dsn := newDB(t)
	spoil(t, connect(t, dsn))

	pool := connect(t, dsn)
	got := make([]string, len(awkwardText))
	targets := make([]any, len(got))
	for i := range got {
		targets[i] = &got[i]
	}
	if err := pool.QueryRow(t.Context(), awkward).Scan(targets...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(awkwardText, got); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}

	conn, err := database.ConnectReplication(t.Context(), dsn, database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.Exec(t.Context(), awkward).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range results[0].Rows[0] {
		if string(v) != awkwardText[i] {
			t.Errorf("replication: column %d is %q, want %q", i, v, awkwardText[i])
		}
	}
}

// TestConnect_WorkInSequenceTakesOneConnection: a released connection is free immediately, even if its session had to
// be reset.
func TestConnect_WorkInSequenceTakesOneConnection(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]database.Options{"usual": {}, "thrifty": {Thrifty: true}} {
		pool, err := database.Connect(t.Context(), newDB(t), o)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for i := range 100 {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if i%2 == 0 {
					database.Used(tx)
				}
				_, err := tx.Exec(t.Context(), "SET work_mem = '1MB'")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := pool.Stat().NewConnsCount(); n != 1 {
			t.Errorf("%s: 100 transactions in sequence took %d connections, want 1", name, n)
		}
	}
}

// TestP5_AHostThatVanishesHoldsItsLocksForSeconds: the server probes its clients, whatever its defaults are: in an
// ordinary session, after a reset, and in a replication session.
func TestP5_AHostThatVanishesHoldsItsLocksForSeconds(t *testing.T) {
	t.Parallel()
	dsn := newDB(t)
	const settings = `SELECT concat_ws(' ', current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),
		current_setting('tcp_keepalives_count'))`
	const want = "10 5 3"
	pool := connect(t, dsn)
	for range 2 {
		var got string
		if err := pool.QueryRow(t.Context(), settings).Scan(&got); err != nil || got != want {
			t.Errorf("pool: %q, %v, want %q", got, err, want)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		database.Used(tx) // the session is reset for its next use
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := database.ConnectReplication(t.Context(), dsn, database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.Exec(t.Context(), settings).ReadAll()
	if err != nil || string(results[0].Rows[0][0]) != want {
		t.Errorf("replication: %v, %v, want %q", results, err, want)
	}
}

// TestP9_AProcessThatStandsStillHoldsNoCheckpointForEver: the server ends a stream that does not read, even if its
// machine answers probes. Until then, a checkpoint that has to remove the slot's WAL waits.
func TestP9_AProcessThatStandsStillHoldsNoCheckpointForEver(t *testing.T) {
	t.Parallel()
	conn, err := database.ConnectReplication(t.Context(), newDB(t), database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.Exec(t.Context(), "SHOW tcp_user_timeout").ReadAll()
	if err != nil || string(results[0].Rows[0][0]) != "300000" {
		t.Errorf("%v, %v, want 300000 ms", results, err)
	}
}

// Heard counts incomplete and skipped messages.
func TestHeard_CountsWhatComes(t *testing.T) {
	t.Parallel()
	conn, err := database.ConnectReplication(t.Context(), newDB(t), database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	before := database.Heard(conn)
	if _, err := conn.Exec(t.Context(), "SELECT repeat('x', 100000)").ReadAll(); err != nil {
		t.Fatal(err)
	}
	if got := database.Heard(conn) - before; before == 0 || got < 100_000 {
		t.Errorf("at the start %d bytes, and then %d", before, got)
	}
}

func TestConnect_TransactionsMayLast(t *testing.T) {
	t.Parallel()
	dsn := newDB(t)
	admin := connect(t, dsn)
	var version int
	var name string
	if err := admin.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int, current_database()`).Scan(
		&version, &name); err != nil {
		t.Fatal(err)
	}
	if version < 170000 {
		return // no such limit
	}
	if _, err := admin.Exec(t.Context(), `ALTER DATABASE "`+name+`" SET transaction_timeout = '1h'`); err != nil {
		t.Fatal(err)
	}
	var limit string
	if err := connect(t, dsn).QueryRow(t.Context(), `SHOW transaction_timeout`).Scan(&limit); err != nil || limit != "0" {
		t.Errorf("pool: %q, %v", limit, err)
	}
	conn, err := database.ConnectReplication(t.Context(), dsn, database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.Exec(t.Context(), `SHOW transaction_timeout`).ReadAll()
	if err != nil || string(results[0].Rows[0][0]) != "0" {
		t.Errorf("replication: %v, %v", results, err)
	}
}

func TestConnect_SQLASCIIGivesTheBytesAsTheyAre(t *testing.T) {
	t.Parallel()
	dsn := asciiDB(t)
	pool := connect(t, dsn)
	var got []byte
	if err := pool.QueryRow(t.Context(), `SELECT convert_from('\xff41'::bytea, 'SQL_ASCII')`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if string(got) != "\xffA" {
		t.Errorf("pool: got %x", got)
	}
	conn, err := database.ConnectReplication(t.Context(), dsn, database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.Exec(t.Context(), `SELECT convert_from('\xff41'::bytea, 'SQL_ASCII')`).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := results[0].Rows[0][0]; string(got) != "\xffA" {
		t.Errorf("replication: got %x", got)
	}
}

func TestConnect_VectorsTravelInBinaryFromAnySchema(t *testing.T) {
	t.Parallel()
	dsn := newDB(t)
	pool := connect(t, dsn)
	ctx := t.Context()
	for _, sql := range []string{
		`DROP EXTENSION IF EXISTS vector`, `CREATE SCHEMA "Odd ""schema"`,
		`CREATE EXTENSION vector SCHEMA "Odd ""schema"`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	pool.Reset()
	in := []pgvector.Vector{pgvector.NewVector([]float32{1, -2.5, 3e-7}), pgvector.NewVector([]float32{0, 0.1, 1e30})}
	null := []*pgvector.Vector{&in[0], nil}
	var out []pgvector.Vector
	if err := pool.QueryRow(ctx, `SELECT $1::"Odd ""schema".vector[]`, in).Scan(&out); err != nil {
		t.Fatal(err)
	}
	if len(out) != 2 || !cmp.Equal(out[1].Slice(), in[1].Slice()) || !cmp.Equal(out[0].Slice(), in[0].Slice()) {
		t.Errorf("got %v, want %v", out, in)
	}
	var one pgvector.Vector
	var missing *pgvector.Vector
	var n int
	err := pool.QueryRow(ctx, `SELECT ($1::"Odd ""schema".vector[])[1], ($1::"Odd ""schema".vector[])[2], cardinality($1::"Odd ""schema".vector[])`, null).Scan(&one, &missing, &n)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(one.Slice(), in[0].Slice()) || missing != nil || n != 2 {
		t.Errorf("got %v, %v, %d", one, missing, n)
	}
	if err := pool.QueryRow(ctx, `SELECT $1::"Odd ""schema".vector`, in[0]).Scan(&one); err != nil {
		t.Fatal(err)
	}
	sparse := []pipeline.Sparse{{Dims: 30522, Pairs: []float32{0, 0.5, 30521, 2}}, {Dims: 30522, Pairs: []float32{7, -1}}}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe} {
		var texts []string
		if err := pool.QueryRow(ctx, `SELECT array_agg(v::text) FROM unnest($1::"Odd ""schema".sparsevec[]) AS v`, mode,
			sparse).Scan(&texts); err != nil {
			t.Fatal(err)
		}
		if want := []string{"{1:0.5,30522:2}/30522", "{8:-1}/30522"}; !cmp.Equal(texts, want) {
			t.Errorf("got %v, want %v", texts, want)
		}
	}
	if _, err := pool.Exec(ctx, `SELECT $1::"Odd ""schema".sparsevec`, pipeline.Sparse{Dims: 3}); err == nil {
		t.Error("an empty sparse vector was sent")
	}
	if _, err := pool.Exec(ctx, `SELECT $1::"Odd ""schema".vector`, pgvector.NewVector(nil)); err == nil {
		t.Error("an empty vector was sent")
	}
}

// pooler simulates PgBouncer: it refuses the start-up parameters that PgBouncer does not know and passes on the others.
// With ignore it drops them instead, like ignore_startup_parameters.
func pooler(t *testing.T, dsn string, ignore bool) string {
	t.Helper()
	target, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	known := map[string]bool{
		"user": true, "database": true, "client_encoding": true, "datestyle": true, "timezone": true,
		"application_name": true, "standard_conforming_strings": true,
	}
	serve := func(client net.Conn) {
		defer func() { _ = client.Close() }()
		backend := pgproto3.NewBackend(client, client)
		msg, err := backend.ReceiveStartupMessage()
		if err != nil {
			return
		}
		startup, ok := msg.(*pgproto3.StartupMessage)
		if !ok {
			return
		}
		for name := range startup.Parameters {
			if known[name] {
				continue
			}
			if ignore {
				delete(startup.Parameters, name)
				continue
			}
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " +
				name})
			_ = backend.Flush()
			return
		}
		server, err := net.Dial("tcp", net.JoinHostPort(target.Host, strconv.Itoa(int(target.Port))))
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		raw, err := startup.Encode(nil)
		if err != nil {
			return
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
		go func() { pipe(client, server) }()
		pipe(server, client)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = l.Addr().String()
	u.RawQuery = "sslmode=disable" + slowly
	return u.String()
}

func TestConnect_ThroughAPooler(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	dsn := db.URL(db.Role("")) + slowly
	if database.Pooled(connect(t, dsn)) {
		t.Error("a direct pool says that it is pooled")
	}
	for _, ignore := range []bool{false, true} {
		through := pooler(t, dsn, ignore)
		_, err := database.Connect(t.Context(), through, database.Options{})
		var e *database.Error
		if !errors.As(err, &e) || e.Kind != database.Pooler {
			t.Fatalf("ignore=%v: got %v, want kind pooler", ignore, err)
		}
		if got := strings.Join(e.Hint, "\n"); !strings.Contains(got, "embedsidecar roles") ||
			strings.Contains(got, "ALTER ROLE") {
			t.Errorf("ignore=%v: hint %q changes a role that an application may use", ignore, got)
		}
		_, err = database.ConnectReplication(t.Context(), through, database.Options{})
		if !errors.As(err, &e) || e.Kind != database.Pooler || !strings.Contains(strings.Join(e.Hint, " "), "--stream-url") {
			t.Errorf("ignore=%v: replication: got %v %q", ignore, err, problem.Hints(err))
		}
	}

	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	// the settings of the script must be enough
	roles := sqlfiles.Roles(u.User.Username(), "another", "another", "another", "another")
	for line := range strings.SplitSeq(roles, "\n") {
		if strings.HasPrefix(line, "ALTER ROLE") {
			db.MustExecSuper(line)
		}
	}
	pool := connect(t, pooler(t, dsn, false))
	if !database.Pooled(pool) {
		t.Error("the pool does not know that it is pooled")
	}
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT $1::int + 1", 1).Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestTrust_APathThatADatabaseGivesToAPoolersSessions: behind a pooler the search_path may be one that the database's
// owner has set: nothing is looked up by it, and it is not accepted, however good it is now.
func TestTrust_APathThatADatabaseGivesToAPoolersSessions(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE SCHEMA lair;
		CREATE FUNCTION lair.same(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'the trap has run as %', current_user; END $$;
		CREATE OPERATOR lair.= (FUNCTION = lair.same, LEFTARG = name, RIGHTARG = name)`)
	for _, path := range []string{"lair, pg_catalog", database.OwnPath} {
		db.MustExec(fmt.Sprintf("ALTER DATABASE %q SET search_path = %s", db.Name, path))
		for _, ignore := range []bool{false, true} {
			_, err := database.Connect(t.Context(), pooler(t, db.URL(testenv.Superuser), ignore), database.Options{})
			var e *database.Error
			if !errors.As(err, &e) || e.Kind != database.Pooler || !strings.Contains(err.Error(), "search_path") {
				t.Errorf("%s, ignore=%t: %v", path, ignore, err)
			}
		}
	}
}

// TestTrust_ARoleThatADatabaseGivesToAPoolersSessions: a pooler begins sessions unnoticed. With the settings of the
// script none of them runs as a role that the database's owner has set.
func TestTrust_ARoleThatADatabaseGivesToAPoolersSessions(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	role, other := db.Role(""), db.Role("")
	db.MustExecSuper("GRANT " + other + " TO " + role)
	for line := range strings.SplitSeq(sqlfiles.Roles(role, "another", "another", "another", "another"), "\n") {
		if strings.HasPrefix(line, "ALTER ROLE") {
			db.MustExecSuper(line)
		}
	}
	pool := connect(t, pooler(t, db.URL(role)+slowly, false))
	db.MustExecSuper(fmt.Sprintf("ALTER DATABASE %q OWNER TO %s", db.Name, other))
	his, err := pgx.Connect(t.Context(), db.URL(other))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = his.Close(context.WithoutCancel(t.Context())) }()
	if _, err := his.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %q SET role = '%s'", db.Name, other)); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	var runs string
	if err := pool.QueryRow(t.Context(), "SELECT current_user").Scan(&runs); err != nil || runs != role {
		t.Errorf("a later session runs as %q, want %q (%v)", runs, role, err)
	}
}

// TestRowOfView: a view may have more columns than fields, and NULL becomes the zero value.
func TestRowOfView(t *testing.T) {
	t.Parallel()
	type told struct {
		Key       string `db:"row_key"`
		CreatedAt *time.Time
		Rows      int64
		Said      string
	}
	conn, err := pgx.Connect(t.Context(), newDB(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	rows, _ := conn.Query(t.Context(), `SELECT 'a' AS row_key, now() AS created_at, NULL::bigint AS rows, 'more' AS more
		UNION ALL SELECT NULL, NULL, 7, NULL`)
	got, err := pgx.CollectRows(rows, database.RowOfView[told])
	if err != nil || len(got) != 2 || got[0].CreatedAt == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	got[0].CreatedAt = nil
	if want := []told{{Key: "a"}, {Rows: 7}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
