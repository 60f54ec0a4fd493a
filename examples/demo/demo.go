package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const (
	role     = "demo"
	database = "demo"
	table    = "public.packages"
)

// questions are the final searches.
var questions = []string{"tool to edit photos", "play music in the terminal", "database server"}

// demo is one run of it.
type demo struct {
	o       options
	out     io.Writer
	server  *testenv.Server
	dsn     string // with password
	sidecar *sidecar
	editor  *editor
	loaded  int
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// show runs the demo and always cleans up.
func show(ctx context.Context, o options, out io.Writer) (err error) {
	d := &demo{o: o, out: out}
	texts, err := readTexts(o.texts)
	if err != nil {
		return err
	}
	d.loaded = min(o.rows, len(texts))
	dir, err := os.MkdirTemp("", "esdemo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	d.say("== a throw-away PostgreSQL")
	// Fsync is on, as on a production server.
	if d.server, err = testenv.Start(ctx, testenv.Options{Major: o.pg, Fsync: true}); err != nil {
		return fmt.Errorf("start a throw-away PostgreSQL: %w", err)
	}
	//nolint:contextcheck // it stops the server even if ctx has ended
	defer func() { err = errors.Join(err, d.server.Close()) }()
	password := rand.Text()
	if err := d.makeDatabase(ctx, password, texts[:d.loaded]); err != nil {
		return err
	}
	d.say("  PostgreSQL %d on %s; table %s holds %d texts and has no column for vectors yet", d.server.Major(),
		d.server.Addr(), table, d.loaded)
	d.editor = newEditor(d.dsn, texts[:d.loaded], texts[d.loaded:], o.broken)

	d.say("\n== the sidecar, with plain flags (the password is in PGPASSWORD)")
	plain := "postgres://" + role + "@" + d.server.Addr() + "/" + database
	if d.sidecar, err = newSidecar(filepath.Join(o.bin, "embedsidecar"), dir, plain, password, out); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.sidecar.stop()) }()
	if err := d.sidecar.start(ctx); err != nil {
		return err
	}
	return d.perform(ctx)
}

// perform runs the steps of the demo.
func (d *demo) perform(ctx context.Context) error {
	steps := []func(context.Context) error{d.fill, d.quiet, d.verify, d.search}
	if d.o.broken {
		steps = []func(context.Context) error{d.fill, d.verify, d.search}
	}
	if d.o.keep {
		steps = append(steps, d.keep)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeDatabase makes a database with pgvector and the texts, owned by a role that is not a superuser.
func (d *demo) makeDatabase(ctx context.Context, password string, texts []pkg) error {
	dsn := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Host: d.server.Addr(), Path: "/" + database}
	d.dsn = dsn.String()
	for _, in := range []struct{ dsn, sql string }{
		{d.server.URL("", ""), "CREATE ROLE " + role + " LOGIN REPLICATION PASSWORD '" + password + "'"},
		{d.server.URL("", ""), "CREATE DATABASE " + database + " OWNER " + role},
		{d.server.URL(database, ""), "CREATE EXTENSION vector"},
	} {
		if err := withConn(ctx, in.dsn, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, in.sql)
			return err
		}); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	return withConn(ctx, d.dsn, func(conn *pgx.Conn) error { return load(ctx, conn, texts) })
}

// fill watches the backfill while rows change and, with --break, while parts are killed.
func (d *demo) fill(ctx context.Context) error {
	const every = 150 * time.Millisecond
	d.say("\n== %d texts are embedded, while rows are edited, inserted and deleted", d.loaded)
	if err := d.atWork(ctx); err != nil {
		return err
	}
	began := time.Now()
	changing, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan error, 1)
	go func() { changed <- d.editor.run(changing, every, 0) }()
	if d.o.broken {
		if err := d.suffer(ctx); err != nil {
			return err
		}
	}
	if err := d.follow(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	stop()
	if err := <-changed; err != nil {
		return err
	}
	if _, err := d.sidecar.command(ctx, "wait", "--caught-up", "--timeout", "5m"); err != nil {
		return err
	}
	if !d.o.broken {
		d.say("  speed               %.0f texts/s", float64(d.loaded)/took.Seconds())
	}
	d.say("  changes meanwhile   %s", d.editor.counts)
	d.say("  commit to vector    %s", d.editor.latency())
	return nil
}

// atWork waits until the sidecar has finished its setup.
func (d *demo) atWork(ctx context.Context) error {
	const every, limit = 50 * time.Millisecond, 5 * time.Minute // a busy machine takes minutes to open the model
	for since := time.Now(); time.Since(since) < limit; {
		err := withConn(ctx, d.dsn, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT embedding FROM public.packages, embedsidecar.scan LIMIT 1")
			return err
		})
		if err == nil {
			return nil
		}
		select {
		case <-d.sidecar.current.Done:
			return fmt.Errorf("the sidecar ended with status %d\n%s", d.sidecar.current.ExitCode(), d.sidecar.tail())
		case <-time.After(every):
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the sidecar has not begun to work within %s\n%s", limit, d.sidecar.tail())
}

// follow prints how many rows have a vector until the backfill is over.
func (d *demo) follow(ctx context.Context) error {
	const every, limit = 2 * time.Second, 5 * time.Minute
	last, since := -1, time.Now()
	for {
		var rows, vectors, open int
		err := withConn(ctx, d.dsn, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM public.packages),
				(SELECT count(embedding) FROM public.packages),
				(SELECT count(*) FILTER (WHERE phase <> 'done') + (count(*) = 0)::int FROM embedsidecar.scan) -- none: soon
				+ (SELECT count(*) FROM embedsidecar.task WHERE lane = 0)`).
				Scan(&rows, &vectors, &open)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && vectors != last:
			last, since = vectors, time.Now()
			d.say("  %d of %d vectors", vectors, rows)
		case time.Since(since) > limit: // the query fails before the sidecar has made the column, or while the server is down
			return errors.Join(fmt.Errorf("nothing was embedded for %s", limit), err)
		}
		if err == nil && open == 0 {
			return nil
		}
		if !sleep.For(ctx, every) {
			return ctx.Err()
		}
	}
}

// quiet measures changes while the sidecar is otherwise idle.
func (d *demo) quiet(ctx context.Context) error {
	const every, changes = 30 * time.Millisecond, 150
	d.say("\n== everything has its vector; %d more changes, one every %s", changes, every)
	if err := d.editor.run(ctx, every, changes); err != nil {
		return err
	}
	d.say("  commit to vector    %s", d.editor.latency())
	return nil
}

// verify compares the vectors with the rows and, with --break, embeds a sample again. Its exit status decides.
func (d *demo) verify(ctx context.Context) error {
	args := []string{"verify"}
	if d.o.broken {
		args = append(args, "--deep", "200")
	}
	return d.sidecar.shown(ctx, args...)
}

// search runs the searches.
func (d *demo) search(ctx context.Context) error {
	d.say("\n== the three nearest rows")
	for _, question := range questions {
		if err := d.sidecar.shown(ctx, "search", table, question, "-k", "3"); err != nil {
			return err
		}
	}
	return nil
}

// keep keeps everything running, with the dashboard, until an interrupt.
func (d *demo) keep(ctx context.Context) error {
	d.say("\n== the dashboard, at the address below; interrupt to end all of it")
	cmd := exec.CommandContext(ctx, d.sidecar.program, "dashboard", "--row-text")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env, cmd.Stdout, cmd.Stderr = d.sidecar.environ, os.Stdout, os.Stderr
	return cmd.Run()
}

// withConn runs f on a new connection.
func withConn(ctx context.Context, dsn string, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}
