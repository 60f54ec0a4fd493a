package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxvector "github.com/pgvector/pgvector-go/pgx"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// place is the environment of the measurements: one server with databases, and a folder for logs.
type place struct {
	options

	sizes
	pg       *testenv.Server // nil: no part that was chosen needs one
	counts   bool            // statements can be counted
	version  string
	dir      string
	summary  []string // texts of the CSV
	out      io.Writer
	environ  []string
	pools    []*pgxpool.Pool
	children []*child
	bare     *model.Model // open once a part has asked for it
	sections []section    // what was measured
}

// serverConfig is a typical basic tuning of a small server. It avoids checkpoints during the runs, which would hit them
// at random.
var serverConfig = map[string]string{
	"shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "shared_preload_libraries": "",
}

// newPlace makes a place, with a server or without. Close it even after an error.
func newPlace(ctx context.Context, o options, server bool, out io.Writer) (p *place, err error) {
	p = &place{options: o, sizes: full, out: out, environ: plainEnviron(os.Environ())}
	if o.smoke {
		p.sizes = short
	}
	p.rounds = cmp.Or(o.again, p.rounds)
	if len(o.rates) > 0 {
		p.cost = o.rates
	}
	return p, try(func() {
		p.summary = readTexts(filepath.Join(o.bin, "..", "examples", "debian-packages.csv"))
		p.dir = must(os.MkdirTemp("", "bench-"))
		if !server {
			return
		}
		for _, name := range []string{
			"embedsidecar", "bench-notify", "plugins/embedsidecar-fake", "plugins/embedsidecar-onnx",
		} {
			_, err := os.Stat(filepath.Join(o.bin, name))
			check(wrap.Errorf(err, "a program is missing; make bench-smoke builds all of them"))
		}
		p.say("starting a server")
		p.startServer(ctx)
		p.onServer(ctx, "", func(conn *pgx.Conn) {
			p.version = value[string](ctx, conn, "SELECT current_setting('server_version')")
		})
	})
}

// startServer starts the server. The part cost needs pg_stat_statements, which is silent until it is asked for, and
// the moment of each commit.
func (p *place) startServer(ctx context.Context) {
	config := maps.Clone(serverConfig)
	bin, _, err := testenv.FindServer(ctx, p.major)
	check(err)
	for _, folder := range []string{"lib", "lib/postgresql"} {
		_, err := os.Stat(filepath.Join(bin, "..", folder, "pg_stat_statements.so"))
		p.counts = p.counts || err == nil && slices.Contains(p.only, costPart)
	}
	if slices.Contains(p.only, costPart) {
		config["track_commit_timestamp"] = "on"
	}
	if p.counts {
		maps.Copy(config, map[string]string{
			"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none", "compute_query_id": "off",
		})
	}
	p.pg = must(testenv.Start(ctx, testenv.Options{Major: p.major, Fsync: true, Config: config}))
}

// close ends everything that is still running.
func (p *place) close() (err error) {
	for _, c := range p.children {
		_ = c.Signal(syscall.SIGKILL) // most have ended
		<-c.Done
	}
	for _, pool := range p.pools {
		pool.Close()
	}
	if p.bare != nil {
		_ = p.bare.Close()
	}
	if p.keep {
		p.say("logs are in %s", p.dir)
	} else {
		err = os.RemoveAll(p.dir)
	}
	if p.pg == nil {
		return err
	}
	if log, failed := os.ReadFile(p.pg.Log()); p.keep && failed == nil {
		err = os.WriteFile(filepath.Join(p.dir, "server.log"), log, 0o600)
	}
	return errors.Join(err, p.pg.Close())
}

// say prints progress.
func (p *place) say(format string, args ...any) { fmt.Fprintf(p.out, "bench: "+format+"\n", args...) }

// onServer runs do on a new connection.
func (p *place) onServer(ctx context.Context, database string, do func(*pgx.Conn)) {
	conn := must(pgx.Connect(ctx, p.pg.URL(database, "")))
	defer func() { _ = conn.Close(ctx) }()
	do(conn)
}

// querier is a pool or a connection.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// execute sends statements, one after the other.
func execute(ctx context.Context, db querier, statements ...string) {
	for _, sql := range statements {
		_, err := db.Exec(ctx, sql)
		check(wrap.Errorf(err, "%s", sql))
	}
}

// value returns the one value that a query gives.
func value[T any](ctx context.Context, db querier, sql string, args ...any) (v T) {
	check(wrap.Errorf(db.QueryRow(ctx, sql, args...).Scan(&v), "%s", sql))
	return v
}

func (p *place) admin(ctx context.Context, database string, statements ...string) {
	p.onServer(ctx, database, func(conn *pgx.Conn) { execute(ctx, conn, statements...) })
}

// database makes an empty database with pgvector. Our sessions stay out of pg_stat_statements.
func (p *place) database(ctx context.Context, name string) *pgxpool.Pool {
	p.admin(ctx, "", "CREATE DATABASE "+name)
	p.admin(ctx, name, "CREATE EXTENSION vector")
	config := must(pgxpool.ParseConfig(p.pg.URL(name, "") + "&application_name=bench&pg_stat_statements.track=none"))
	config.MaxConns, config.AfterConnect = clients, pgxvector.RegisterTypes
	pool := must(pgxpool.NewWithConfig(ctx, config))
	p.pools = append(p.pools, pool)
	return pool
}

// drop removes a database that nothing uses any more.
func (p *place) drop(ctx context.Context, pool *pgxpool.Pool) {
	execute(ctx, pool, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE database = current_database()`)
	pool.Close()
	p.admin(ctx, "", "DROP DATABASE "+named(pool)+" WITH (FORCE)")
}

// named is a pool's database.
func named(pool *pgxpool.Pool) string { return pool.Config().ConnConfig.Database }

// docs makes a database with a table docs of so many rows.
func (p *place) docs(ctx context.Context, name string, rows int) *pgxpool.Pool {
	pool := p.database(ctx, name)
	execute(ctx, pool, `CREATE TABLE public.docs (id bigint PRIMARY KEY, body text NOT NULL,
		views int NOT NULL DEFAULT 0, changed_at timestamptz)`, "CREATE SEQUENCE public.docs_ids START 1000000")
	copyTexts(ctx, pool, rows, func(i int) (int, string) { return i + 1, p.text(i+1, 0) })
	execute(ctx, pool, "VACUUM ANALYZE public.docs")
	return pool
}

// copyTexts fills the table docs, in one transaction.
func copyTexts(ctx context.Context, pool *pgxpool.Pool, rows int, row func(i int) (id int, text string)) {
	_, err := pool.CopyFrom(ctx, pgx.Identifier{"public", "docs"}, []string{"id", "body"},
		pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
			id, text := row(i)
			return []any{id, text}, nil
		}))
	check(wrap.Errorf(err, "fill the table"))
}

// libpq is an environment in which PostgreSQL's own programs find the server and a database.
func (p *place) libpq(name string) []string {
	config := must(pgx.ParseConfig(p.pg.URL(name, "")))
	host, port, err := net.SplitHostPort(p.pg.Addr())
	check(err)
	return append(slices.Clip(p.environ), "PGHOST="+host, "PGPORT="+port, "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+name, "PGSSLMODE=disable")
}

// plainEnviron removes variables that would change a program's configuration.
func plainEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		ours := strings.HasPrefix(e, "EMBEDSIDECAR_") && !strings.HasPrefix(e, "EMBEDSIDECAR_ONNXRUNTIME") &&
			!strings.HasPrefix(e, "EMBEDSIDECAR_MODEL")
		return ours || strings.HasPrefix(e, "PG")
	})
}

// readTexts returns the last column of a CSV with a heading.
func readTexts(path string) []string {
	defer during("read texts of %s", path)
	f := must(os.Open(path))
	defer func() { _ = f.Close() }()
	records := must(csv.NewReader(f).ReadAll())
	if len(records) < 2 {
		check(fmt.Errorf("%d lines", len(records)))
	}
	return lists.Map(records[1:], func(r []string) string { return r[len(r)-1] })
}

// text returns a text of about a hundred bytes that no other number and version has.
func (p *place) text(n, version int) string {
	return fmt.Sprintf("%s. %s (%d, %d)", p.summary[n%len(p.summary)], p.summary[(n*7+version)%len(p.summary)], n, version)
}

// lengths are the numbers of sentences in ten texts: mostly short and a few long, as in real tables. With this
// project's CSV a text has about 60 tokens on average and at most 250.
var lengths = []int{1, 1, 1, 2, 3, 4, 5, 8, 12, 24}

// mixed returns texts of many lengths, in no order of length.
func (p *place) mixed(n int) []string {
	texts := make([]string, n)
	next := 0
	for i := range texts {
		var sentences []string
		for range lengths[i%len(lengths)] {
			sentences = append(sentences, p.summary[next%len(p.summary)]+".")
			next += 3 // 8,000 is not a multiple, so all are used before one repeats
		}
		texts[i] = strings.Join(sentences, " ")
	}
	return texts
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func micros(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// clients keep two cores busy.
const clients = 4

// Names of those that the writer is measured beside, in the order of the tables.
const (
	nobody       = "the writer alone"
	recvlogical  = "pg_recvlogical"
	notifyGo     = "NOTIFY worker, Go"
	notifyPython = "NOTIFY worker, Python"
	usTable      = "embedsidecar, embedding table"
	usColumn     = "embedsidecar, column"
)

// A script is what pgbench does to the table docs.
type script struct{ name, sql string }

const docsRows = 10_000

var (
	updateSource = script{"update of the source column", sourceOf(docsRows)}
	updateOther  = script{"update of another column", otherOf(docsRows)}
	insertRow    = script{"insert", "\\set n random(1, 1000000000)\nINSERT INTO public.docs (id, body) " +
		"VALUES (nextval('public.docs_ids'), 'a text that is new, number ' || :n);\n"}
)

// sourceOf changes the source column of one of so many rows, and otherOf another one.
func sourceOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\n\\set n random(1, 1000000000)\n"+
		"UPDATE public.docs SET body = 'a text that was changed once more, number ' || :n WHERE id = :id;\n", rows)
}

func otherOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\nUPDATE public.docs SET views = views + 1 WHERE id = :id;\n", rows)
}

// costPart is the part that needs more of the server than others.
const costPart = "cost"

// options are the flags.
type options struct {
	smoke, keep             bool
	json                    string
	bin                     string // folder with embedsidecar, bench-notify and plugins/
	python, weights, static string
	major, again            int // again: rounds; 0: as many as usual
	only                    []string
	rates                   []int // of the part cost; none: its own
}

// sizes say how much is measured.
type sizes struct {
	rounds     int           // of everything that is a ratio
	realTexts  int           // with the real model
	rows       int           // with the fake embedder
	columns    bool          // measure a column destination, too
	pgbench    time.Duration // one run
	scripts    []script
	waiting    int // transactions that wait in a slot
	questions  int // of each kind, idle and during a backfill
	table      int // rows whose memory is measured, and those of one transaction
	atOnce     int
	cost       []int         // single-row commits a second
	costLength time.Duration // of a load
	costRows   int
	costBeside []string
}

var (
	short = sizes{
		rounds: 3, realTexts: 600, rows: 20_000, pgbench: 3 * time.Second, scripts: []script{updateSource}, questions: 60,
		waiting: 10_000, table: 100_000, atOnce: 200_000, cost: []int{300}, costLength: 2 * time.Second, costRows: 5000,
		costBeside: []string{nobody, recvlogical, notifyGo, usTable},
	}
	full = sizes{
		rounds: 5, realTexts: 2000, rows: 100_000, columns: true, pgbench: 15 * time.Second,
		scripts: []script{updateSource, updateOther, insertRow}, questions: 1000, waiting: 100_000, table: 1_000_000,
		atOnce: 2_000_000, cost: []int{30, 300, 1000, 3000}, costLength: 4 * time.Second, costRows: 10_000,
		costBeside: []string{nobody, recvlogical, notifyGo, notifyPython, usTable, usColumn},
	}
)
