package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

const (
	role     = "demo"
	database = "demo"
	table    = "public.packages"
)

// questions are what is searched for at the end.
var questions = []string{"tool to edit photos", "play music in the terminal", "database server"}

// demo is one run of it.
type demo struct {
	options

	server  *testenv.Server
	dsn     string // with password
	sidecar *sidecar
	editor  *editor
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// show runs the demo and cleans up, however it ends.
func show(ctx context.Context, o options) (err error) {
	d := &demo{options: o}
	dir, err := os.MkdirTemp("", "esdemo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	say("== a throw-away PostgreSQL")
	// Its settings are the usual ones: it also waits for the disk at each commit.
	if d.server, err = testenv.Start(ctx, testenv.Options{Major: o.pg, Fsync: true}); err != nil {
		return fmt.Errorf("start a throw-away PostgreSQL: %w", err)
	}
	//nolint:contextcheck // it ends the server also after ctx has ended
	defer func() { err = errors.Join(err, d.server.Close()) }()
	password := rand.Text()
	if err := d.makeDatabase(ctx, password); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	say("  PostgreSQL %d on %s; table %s holds %d texts and has no column for vectors yet", d.server.Major(),
		d.server.Addr(), table, d.rows)

	say("\n== the sidecar, with plain flags (the password is in PGPASSWORD)")
	plain := "postgres://" + role + "@" + d.server.Addr() + "/" + database
	if d.sidecar, err = newSidecar(filepath.Join(o.bin, "embedsidecar"), dir, plain, password); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.sidecar.stop()) }()
	if err := d.sidecar.start(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.fill, d.quiet, d.verify, d.search, d.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeDatabase makes a role that is no superuser and owns a database with pgvector and the texts. The table is the one
// of docker-compose.yml, but for the vectors' column: the sidecar makes that.
func (d *demo) makeDatabase(ctx context.Context, password string) error {
	dsn := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Host: d.server.Addr(), Path: "/" + database}
	d.dsn = dsn.String()
	d.editor = &editor{dsn: d.dsn, tough: d.broken}
	for _, in := range []struct{ dsn, sql string }{
		{d.server.URL("", ""), "CREATE ROLE " + role + " LOGIN REPLICATION PASSWORD '" + password + "'"},
		{d.server.URL("", ""), "CREATE DATABASE " + database + " OWNER " + role},
		{d.server.URL(database, ""), "CREATE EXTENSION vector"},
		{d.dsn, `CREATE TABLE public.packages (id integer PRIMARY KEY, name text NOT NULL, section text NOT NULL,
			summary text NOT NULL)`},
	} {
		err := withConn(ctx, in.dsn, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, in.sql)
			return err
		})
		if err != nil {
			return err
		}
	}
	texts, err := os.Open(filepath.Join(d.bin, "..", "examples", "debian-packages.csv"))
	if err != nil {
		return err
	}
	defer func() { _ = texts.Close() }()
	return withConn(ctx, d.dsn, func(conn *pgx.Conn) error {
		if _, err := conn.PgConn().CopyFrom(ctx, texts, "COPY public.packages FROM STDIN (FORMAT csv, HEADER)"); err != nil {
			return err
		}
		kept, err := conn.Exec(ctx, `WITH gone AS (DELETE FROM public.packages WHERE id NOT IN (SELECT id
			FROM public.packages ORDER BY md5(id::text) LIMIT $1)) SELECT id FROM public.packages ORDER BY md5(id::text) LIMIT $1`,
			d.rows)
		d.rows = int(kept.RowsAffected())
		return err
	})
}

// fill watches the backfill while rows change and, with --break, while parts are killed.
func (d *demo) fill(ctx context.Context) error {
	const every = 150 * time.Millisecond
	say("\n== %d texts are embedded, while rows are edited, inserted and deleted", d.rows)
	if err := d.follow(ctx, false); err != nil {
		return err
	}
	began := time.Now()
	changing, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan error, 1)
	go func() { changed <- d.editor.run(changing, every, 0) }()
	if d.broken {
		if err := d.suffer(ctx); err != nil {
			return err
		}
	}
	if err := d.follow(ctx, true); err != nil {
		return err
	}
	took := time.Since(began)
	stop()
	if err := <-changed; err != nil {
		return err
	}
	if err := d.sidecar.command(ctx, false, "wait", "--caught-up", "--timeout", "5m"); err != nil {
		return err
	}
	if !d.broken {
		say("  speed               %.0f texts/s", float64(d.rows)/took.Seconds())
	}
	var counts string
	for i, n := range d.editor.counts {
		counts += fmt.Sprintf("%d %s ", n, changes[i].what)
	}
	say("  changes meanwhile   %s", counts)
	say("  commit to vector    %s", d.editor.latency())
	return nil
}

// follow prints how many rows have a vector until the backfill has begun, or is over. Before the sidecar has made the
// column, or while the server is away, it cannot be asked; a busy machine takes minutes to open the model.
func (d *demo) follow(ctx context.Context, toTheEnd bool) error {
	const limit = 5 * time.Minute
	last, since := 0, time.Now()
	for {
		var rows, vectors, open int
		err := withConn(ctx, d.dsn, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM public.packages), (SELECT count(embedding) FROM public.packages),
				(SELECT count(*) FROM embedsidecar.scan WHERE phase <> 'done') + (SELECT count(*) FROM embedsidecar.task WHERE lane = 0)`).
				Scan(&rows, &vectors, &open)
		})
		if err == nil && vectors != last {
			last, since = vectors, time.Now()
			say("  %d of %d vectors", vectors, rows)
		}
		if err == nil && (open == 0 && toTheEnd || !toTheEnd) {
			return nil
		}
		if time.Since(since) > limit {
			return errors.Join(fmt.Errorf("nothing was embedded for %s\n%s", limit, d.sidecar.tail()), err)
		}
		select {
		case <-d.sidecar.current.Done:
			return fmt.Errorf("the sidecar ended with status %d\n%s", d.sidecar.current.ExitCode(), d.sidecar.tail())
		case <-time.After(map[bool]time.Duration{false: 50 * time.Millisecond, true: 2 * time.Second}[toTheEnd]):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quiet measures changes that find the sidecar with nothing else to do.
func (d *demo) quiet(ctx context.Context) error {
	if d.broken {
		return nil
	}
	const every, enough = 30 * time.Millisecond, 150
	say("\n== everything has its vector; %d more changes, one every %s", enough, every)
	if err := d.editor.run(ctx, every, enough); err != nil {
		return err
	}
	say("  commit to vector    %s", d.editor.latency())
	return nil
}

// verify compares the vectors with the rows and, with --break, embeds a sample again. Its exit status judges.
func (d *demo) verify(ctx context.Context) error {
	if d.broken {
		return d.sidecar.command(ctx, true, "verify", "--deep", "200")
	}
	return d.sidecar.command(ctx, true, "verify")
}

// search asks the questions.
func (d *demo) search(ctx context.Context) error {
	say("\n== the three nearest rows")
	for _, question := range questions {
		if err := d.sidecar.command(ctx, true, "search", table, question, "-k", "3"); err != nil {
			return err
		}
	}
	return nil
}

// serve leaves all of it running, if told to, and shows its dashboard, until it is interrupted.
func (d *demo) serve(ctx context.Context) error {
	if !d.keep {
		return nil
	}
	say("\n== the dashboard, at the address below; interrupt to end all of it")
	return d.sidecar.program(ctx, "dashboard", "--admin-row-text").Run()
}

// withConn runs f on a connection of its own.
func withConn(ctx context.Context, dsn string, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}

// pause reports whether the time is over and ctx is not.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
