package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// demo is one run of it.
type demo struct {
	o       options
	out     *console
	watch   *stopwatch
	server  *testenv.Server
	dsn     string // with password
	sidecar *sidecar
	live    *live
	vectors atomic.Int64 // that are there, by the last look
	waiting atomic.Int64 // rows to be looked at
	figures figures
}

// figures are what the summary tells.
type figures struct {
	loaded     int
	backfill   time.Duration
	embedded   int // rows that had a vector at the end of the backfill
	busy, idle []time.Duration
}

const (
	role     = "demo"
	database = "demo"
)

// questions are what is searched for at the end.
var questions = []string{"tool to edit photos", "play music in the terminal", "database server"}

// show runs the demo and cleans up, however it ends.
func show(ctx context.Context, cancel context.CancelCauseFunc, o options, environ []string, out *console) (err error) {
	d := &demo{o: o, out: out, watch: newStopwatch()}
	texts, err := readTexts(o.texts)
	if err != nil {
		return err
	}
	if o.rows == 0 {
		o.rows = len(texts) * 15 / 16
	}
	if o.rows > len(texts) {
		return fail(fmt.Errorf("--rows %d: %s has %d texts", o.rows, o.texts, len(texts)), "give a smaller number")
	}
	program, err := findProgram(o.bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "esdemo-")
	if err != nil {
		return fmt.Errorf("make a folder for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := enoughSpace(dir); err != nil {
		return err
	}

	out.heading("a throw-away PostgreSQL")
	address, err := d.startServer(ctx)
	if err != nil {
		return err
	}
	//nolint:contextcheck // it ends the server also after ctx has ended
	defer func() { err = errors.Join(err, d.server.Close()) }()
	password := rand.Text()
	conn, err := d.makeDatabase(ctx, password)
	if err != nil {
		return err
	}
	defer leave(ctx, conn)
	d.watch.lap("server")
	if err := load(ctx, conn, texts[:o.rows]); err != nil {
		return err
	}
	out.say("  PostgreSQL %d on %s; table public.packages holds %s texts, and has no column for vectors yet",
		d.server.Major(), address, thousands(o.rows))
	d.figures.loaded = o.rows
	d.watch.lap("loading")

	if err := keepMarks(ctx, conn, marksSlot); err != nil {
		return err
	}
	plain := "postgres://" + role + "@" + address + "/" + database
	d.sidecar, err = newSidecar(o, program, out, dir, plain, password, environ)
	if err != nil {
		return err
	}
	d.sidecar.ended = func(cause error) { cancel(cause) }
	defer func() { err = errors.Join(err, d.leaveNothing()) }()
	d.live = newLive(d.dsn, texts[:o.rows], texts[o.rows:], o.broken)
	if err := d.perform(ctx, conn); err != nil {
		if context.Cause(ctx) == nil || !errors.Is(context.Cause(ctx), errInterrupted) {
			if tail := d.sidecar.tail(8); tail != "" {
				out.endProgress()
				out.say("\nwarnings and errors of the sidecar's log:\n%s", tail)
			}
		}
		return err
	}
	return nil
}

// perform is what there is to see.
func (d *demo) perform(ctx context.Context, conn *pgx.Conn) error {
	d.out.heading("the sidecar, with plain flags (the password is in PGPASSWORD)")
	if err := d.sidecar.start(ctx); err != nil {
		return err
	}
	if err := d.atWork(ctx, conn); err != nil {
		return err
	}
	d.watch.lap("set-up")

	steps := []func(context.Context) error{d.fill, d.catchUp, d.idle, d.verify, d.summary, d.search}
	if d.o.broken {
		steps = []func(context.Context) error{d.suffer, d.catchUp, d.summary, d.verify, d.search}
	}
	if d.o.keep {
		steps = append(steps, d.keep)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := d.sidecar.stop(); err != nil {
		return err
	}
	if c := d.sidecar.current; c.err != nil {
		return fmt.Errorf("the sidecar was asked to end and failed: %w", c.err)
	}
	d.watch.lap("stopping")
	d.out.say("\ntook: %s", d.watch)
	return nil
}

// keep leaves all of it running, and shows its dashboard, until somebody interrupts.
func (d *demo) keep(ctx context.Context) error {
	d.out.heading("the dashboard, at the address below; interrupt to end all of it")
	args := []string{"dashboard", "--database-url", d.sidecar.url, "--slot", slotName, "--admin-row-text"}
	d.out.say("  %s", shell(append([]string{d.sidecar.program}, args...)))
	cmd := exec.CommandContext(ctx, d.sidecar.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env, cmd.Stdout, cmd.Stderr = d.sidecar.environ, os.Stdout, os.Stderr
	return cmd.Run()
}

func (d *demo) startServer(ctx context.Context) (address string, err error) {
	if d.o.port != 0 {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.o.port)))
		if err != nil {
			return "", fail(fmt.Errorf("port %d cannot be used: %w", d.o.port, err),
				"name another with --port, or none: then a free one is found")
		}
		_ = l.Close()
	}
	// Its settings are the usual ones: it also waits for the disk at each commit.
	d.server, err = testenv.Start(ctx, testenv.Options{Major: d.o.pg, Port: d.o.port, Fsync: true})
	if err != nil {
		return "", fmt.Errorf("start a throw-away PostgreSQL: %w", err)
	}
	return d.server.Addr(), nil
}

// makeDatabase makes a role that is no superuser and owns a database with pgvector, and connects as it.
func (d *demo) makeDatabase(ctx context.Context, password string) (*pgx.Conn, error) {
	for _, in := range []struct{ database, sql string }{
		{"", "CREATE ROLE " + role + " LOGIN REPLICATION PASSWORD '" + password + "'"},
		{"", "CREATE DATABASE " + database + " OWNER " + role},
		{database, "CREATE EXTENSION vector"},
	} {
		admin, err := pgx.Connect(ctx, d.server.URL(in.database, ""))
		if err == nil {
			_, err = admin.Exec(ctx, in.sql)
			_ = admin.Close(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("make the database: %w", err)
		}
	}
	dsn := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Host: d.server.Addr(), Path: "/" + database}
	d.dsn = dsn.String()
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// atWork waits until the sidecar has set everything up and its scan has begun.
func (d *demo) atWork(ctx context.Context, conn *pgx.Conn) error {
	const timeout = 5 * time.Minute // on a machine with other things to do it takes minutes to open the model
	deadline := time.Now().Add(timeout)
	for {
		var begun bool
		err := conn.QueryRow(ctx, "SELECT to_regclass('embedsidecar.scan') IS NOT NULL").Scan(&begun)
		if err == nil && begun {
			err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM embedsidecar.scan WHERE phase <> 'waiting')").Scan(&begun)
		}
		switch {
		case err != nil:
			return err
		case begun:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the sidecar has not begun to work within %s", timeout)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// state is how far the backfill is.
type state struct {
	rows, vectors int
	scanned       bool // the scan is over
	open          int  // tasks of the scan; a live change lifts its row out of them
	waiting       int  // rows to be looked at, for whatever reason
}

// Row counts of tables this small are exact and cheap.
const stateSQL = `SELECT (SELECT count(*) FROM public.packages), (SELECT count(embedding) FROM public.packages),
       NOT EXISTS (SELECT FROM embedsidecar.scan WHERE phase <> 'done'),
       (SELECT count(*) FROM embedsidecar.task WHERE lane = 0), (SELECT count(*) FROM embedsidecar.task)`

// follow draws progress until finished says that it is enough. In its own connections it survives restarts of the
// server.
func (d *demo) follow(ctx context.Context, finished func(state) bool) error {
	const every, timeout = 250 * time.Millisecond, 5 * time.Minute
	var (
		conn   *pgx.Conn
		drawn  *bar
		last   = -1
		change = time.Now()
	)
	defer func() { leave(ctx, conn) }()
	for {
		var (
			now state
			err error
		)
		if conn == nil {
			conn, err = d.live.connect(ctx)
		}
		if err == nil {
			if err = conn.QueryRow(ctx, stateSQL).Scan(&now.rows, &now.vectors, &now.scanned, &now.open,
				&now.waiting); err != nil {
				leave(ctx, conn)
				conn = nil
			}
		}
		switch {
		case err == nil:
			if drawn == nil {
				drawn = newBar(now.vectors)
			}
			if now.vectors != last {
				last, change = now.vectors, time.Now()
			}
			d.vectors.Store(int64(now.vectors))
			d.waiting.Store(int64(now.waiting))
			line := drawn.set(now.vectors, now.rows)
			if d.o.broken {
				line += fmt.Sprintf("  %s wait", thousands(now.waiting))
			}
			d.out.progress(line)
			if finished(now) {
				d.figures.embedded = now.vectors
				return nil
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.o.broken:
			return err
		}
		if time.Since(change) > timeout {
			return fmt.Errorf("nothing was embedded for %s", timeout)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// fill watches the backfill while rows change.
func (d *demo) fill(ctx context.Context) error {
	const every = 150 * time.Millisecond
	d.out.heading("%s texts are embedded, while rows are edited, inserted and deleted", thousands(d.figures.loaded))
	stop, changed := make(chan struct{}), make(chan error, 1)
	go func() { changed <- d.live.run(ctx, every, 0, stop) }()
	err := d.follow(ctx, func(s state) bool { return s.scanned && s.open == 0 })
	close(stop)
	d.figures.backfill = d.watch.lap("backfill")
	err = errors.Join(err, <-changed)
	d.figures.busy = d.live.latencies()
	d.out.endProgress()
	return errors.Join(err, ctx.Err())
}

// suffer does the same while things break.
func (d *demo) suffer(ctx context.Context) error {
	const every = 100 * time.Millisecond
	d.out.heading("%s texts are embedded, rows change, and %d times something breaks", thousands(d.figures.loaded),
		d.o.faults)
	b := &breaker{server: d.server, sidecar: d.sidecar, out: d.out, vectors: func() int { return int(d.vectors.Load()) }}
	var calm atomic.Bool
	// There shall be work for every fault to hit, also on a fast machine.
	d.live.bored = func() bool { return !calm.Load() && d.waiting.Load() < bulk }
	stop, changed, broken := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { changed <- d.live.run(ctx, every, 0, stop) }()
	breaking, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { broken <- b.run(breaking, d.o.faults) }()
	var end error
	over := false
	err := d.follow(ctx, func(state) bool {
		select {
		case end = <-broken:
			over = true
		default:
		}
		return over
	})
	if !over {
		cancel()
		end = <-broken
	}
	d.watch.lap("faults")
	if err = errors.Join(err, end); err != nil {
		close(stop)
		return errors.Join(err, <-changed)
	}
	calm.Store(true)
	d.out.say("  nothing is broken any more; the rest is embedded")
	err = d.follow(ctx, func(s state) bool { return s.scanned && s.open == 0 })
	close(stop)
	d.figures.backfill = d.watch.lap("the rest")
	err = errors.Join(err, <-changed)
	d.figures.busy = d.live.latencies()
	d.out.endProgress()
	return errors.Join(err, ctx.Err())
}

// catchUp waits for everything that is committed.
func (d *demo) catchUp(ctx context.Context) error {
	_, err := d.sidecar.shown(ctx, "wait", "--caught-up", "--slot", slotName, "--timeout", "2m")
	d.watch.lap("catching up")
	return err
}

// idle measures changes that find the sidecar with nothing else to do.
func (d *demo) idle(ctx context.Context) error {
	const every, changes = 30 * time.Millisecond, 150
	d.out.heading("everything has its vector; %d more changes, one every %s", changes, every)
	if err := d.live.run(ctx, every, changes, nil); err != nil {
		return err
	}
	d.figures.idle = d.live.latencies()
	d.watch.lap("idle changes")
	return d.catchUp(ctx)
}

// verification is the part of `embedsidecar verify -o json` that is looked at.
type verification struct {
	Pipelines []struct {
		OK                                                              bool
		Rows, Wanted, Covered, Missing, Stale, Orphans, Sampled, Differ int64
		Problem                                                         string
		Examples                                                        []string
	}
}

// verify has the vectors compared with the rows, and with --break also a sample embedded again.
func (d *demo) verify(ctx context.Context) error {
	args := []string{"verify", "-o", "json"}
	if d.o.broken {
		args = append(args, "--deep", "200")
	}
	answer, failed := d.sidecar.shown(ctx, args...)
	var v verification
	if err := json.Unmarshal(answer, &v); err != nil || len(v.Pipelines) != 1 {
		return errors.Join(failed, err, fmt.Errorf("verify: expected one pipeline, got %d", len(v.Pipelines)))
	}
	p := v.Pipelines[0]
	line := fmt.Sprintf("%s rows: %d missing, %d stale, %d orphans", thousands(p.Rows), p.Missing, p.Stale, p.Orphans)
	if d.o.broken {
		line += fmt.Sprintf("; %d embedded again, of which %d differ", p.Sampled, p.Differ)
	}
	d.watch.lap("verifying")
	if failed != nil || !p.OK || p.Missing+p.Stale+p.Orphans+p.Differ != 0 || p.Covered != p.Wanted {
		return errors.Join(failed, fmt.Errorf("the vectors are not those of the rows: %s %s; %s", line, p.Problem,
			strings.Join(p.Examples, "; ")))
	}
	d.out.say("  %s", line)
	return nil
}

// search asks the questions.
func (d *demo) search(ctx context.Context) error {
	d.out.heading("the three nearest rows")
	for _, question := range questions {
		answer, err := d.sidecar.shown(ctx, "search", pipelineName, question, "-k", "3")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(answer)) {
			d.out.say("    %s", strings.TrimRight(line, " \n"))
		}
	}
	d.watch.lap("searching")
	return nil
}

// leaveNothing ends the sidecar, if it still runs, and makes sure that none of its processes is left.
func (d *demo) leaveNothing() error {
	const timeout = 30 * time.Second
	err := d.sidecar.stop()
	deadline := time.Now().Add(timeout)
	for {
		left := processesWith(d.sidecar.mark)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return errors.Join(err, fmt.Errorf("processes were left behind and are killed now: %v", left))
		}
		<-time.After(20 * time.Millisecond)
	}
	if err == nil && d.sidecar.starts > 1 {
		d.out.say("  the sidecar was started %d times; no process is left behind", d.sidecar.starts)
	}
	return errors.Join(err, d.sidecar.log.Close())
}

// enoughSpace tells before the server does that the disk is full.
func enoughSpace(dir string) error {
	const need = 400 << 20
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return nil //nolint:nilerr // then the server will tell
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < need {
		return fail(fmt.Errorf("the disk is full: %d MB are free for temporary files, the server takes %d", free>>20,
			need>>20),
			"free some space, or set TMPDIR to a folder on another disk")
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
