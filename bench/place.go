package main

import (
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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxvector "github.com/pgvector/pgvector-go/pgx"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// place is where everything is measured: one server with databases, and a folder for logs.
type place struct {
	options

	sizes
	pg      *testenv.Server
	counts  bool // statements can be counted
	version string
	dir     string
	summary []string // texts of the CSV
	out     io.Writer
	environ []string
	pools   []*pgxpool.Pool
	logs    int
}

// serverConfig is that of a small server of somebody who read one page on tuning. It keeps checkpoints out of the
// runs: which of them one hits would be chance.
var serverConfig = map[string]string{
	"shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "shared_preload_libraries": "",
}

func newPlace(ctx context.Context, o options, out io.Writer) (_ *place, err error) {
	p := &place{options: o, sizes: full, out: out, environ: plainEnviron(os.Environ())}
	if o.smoke {
		p.sizes = short
	}
	if o.again > 0 {
		p.rounds = o.again
	}
	if len(o.rates) > 0 {
		p.cost = o.rates
	}
	if p.summary, err = readTexts(filepath.Join(o.bin, "..", "examples", "debian-packages.csv")); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for logs: %w", err)
	}
	p.say("starting a server")
	err = p.startServer(ctx)
	if err == nil {
		err = p.onServer(ctx, "", func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&p.version)
		})
	}
	if err != nil {
		return nil, errors.Join(err, p.close()) //nolint:contextcheck // it ends the server also after ctx has ended
	}
	return p, nil
}

// startServer starts the server. The part cost needs pg_stat_statements, which is silent until it is asked for, and
// the moment of each commit.
func (p *place) startServer(ctx context.Context) error {
	config := maps.Clone(serverConfig)
	bin, _, err := testenv.FindServer(ctx, p.major)
	if err != nil {
		return err
	}
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
	p.pg, err = testenv.Start(ctx, testenv.Options{Major: p.major, Fsync: true, Config: config})
	return err
}

func (p *place) close() error {
	for _, pool := range p.pools {
		pool.Close()
	}
	var err error
	if p.keep {
		p.say("logs are in %s", p.dir)
		if log, failed := os.ReadFile(p.pg.Log()); failed == nil {
			err = os.WriteFile(filepath.Join(p.dir, "server.log"), log, 0o600)
		}
	} else {
		err = os.RemoveAll(p.dir)
	}
	if p.pg != nil {
		err = errors.Join(err, p.pg.Close())
	}
	return err
}

// say tells what is going on.
func (p *place) say(format string, args ...any) { fmt.Fprintf(p.out, "bench: "+format+"\n", args...) }

// onServer does something on a connection of its own.
func (p *place) onServer(ctx context.Context, database string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.pg.URL(database, ""))
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// execute sends statements, one after the other, and says which one failed.
func execute(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, statements ...string,
) error {
	for _, sql := range statements {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (p *place) admin(ctx context.Context, database string, statements ...string) error {
	return p.onServer(ctx, database, func(conn *pgx.Conn) error { return execute(ctx, conn, statements...) })
}

// database makes an empty database with pgvector. Our sessions stay out of pg_stat_statements.
func (p *place) database(ctx context.Context, name string) (*pgxpool.Pool, error) {
	err := p.admin(ctx, "", "CREATE DATABASE "+name)
	if err == nil {
		err = p.admin(ctx, name, "CREATE EXTENSION vector")
	}
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(p.pg.URL(name, "") + "&application_name=bench&pg_stat_statements.track=none")
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.AfterConnect = clients, pgxvector.RegisterTypes
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	p.pools = append(p.pools, pool)
	return pool, nil
}

// drop removes a database that nothing uses any more.
func (p *place) drop(ctx context.Context, pool *pgxpool.Pool) error {
	err := execute(ctx, pool, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE database = current_database()`)
	pool.Close()
	return errors.Join(err, p.admin(ctx, "", "DROP DATABASE "+named(pool)+" WITH (FORCE)"))
}

// named is a pool's database.
func named(pool *pgxpool.Pool) string { return pool.Config().ConnConfig.Database }

// docs makes a database with a table docs of so many rows.
func (p *place) docs(ctx context.Context, name string, rows int) (*pgxpool.Pool, error) {
	pool, err := p.database(ctx, name)
	if err != nil {
		return nil, err
	}
	err = execute(ctx, pool, `CREATE TABLE public.docs (id bigint PRIMARY KEY, body text NOT NULL,
		views int NOT NULL DEFAULT 0, changed_at timestamptz)`, "CREATE SEQUENCE public.docs_ids START 1000000")
	if err == nil {
		err = copyTexts(ctx, pool, rows, func(i int) (int, string) { return i + 1, p.text(i+1, 0) })
	}
	if err == nil {
		err = execute(ctx, pool, "VACUUM ANALYZE public.docs")
	}
	return pool, err
}

// copyTexts fills the table docs, in one transaction.
func copyTexts(ctx context.Context, pool *pgxpool.Pool, rows int, row func(i int) (id int, text string)) error {
	_, err := pool.CopyFrom(ctx, pgx.Identifier{"public", "docs"}, []string{"id", "body"},
		pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
			id, text := row(i)
			return []any{id, text}, nil
		}))
	return wrap.Errorf(err, "fill the table")
}

// libpq is an environment in which PostgreSQL's own programs find the server and a database.
func (p *place) libpq(name string) ([]string, error) {
	config, err := pgx.ParseConfig(p.pg.URL(name, ""))
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(p.pg.Addr())
	return append(slices.Clip(p.environ), "PGHOST="+host, "PGPORT="+port, "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+name, "PGSSLMODE=disable"), err
}

// plainEnviron leaves out what would configure a program otherwise than this one means.
func plainEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		ours := strings.HasPrefix(e, "EMBEDSIDECAR_") && !strings.HasPrefix(e, "EMBEDSIDECAR_ONNXRUNTIME") &&
			!strings.HasPrefix(e, "EMBEDSIDECAR_MODEL")
		return ours || strings.HasPrefix(e, "PG")
	})
}

// readTexts returns the last column of a CSV with a heading.
func readTexts(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer func() { _ = f.Close() }()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil || len(records) < 2 {
		return nil, fmt.Errorf("read texts of %s (%d lines): %w", path, len(records), err)
	}
	texts := make([]string, 0, len(records))
	for _, r := range records[1:] {
		texts = append(texts, r[len(r)-1])
	}
	return texts, nil
}

// text returns a text of about a hundred bytes that no other number and version has.
func (p *place) text(n, version int) string {
	return fmt.Sprintf("%s. %s (%d, %d)", p.summary[n%len(p.summary)], p.summary[(n*7+version)%len(p.summary)], n, version)
}

// lengths are how many sentences each of ten texts has: mostly short ones and a few long, as in real tables. With
// this project's CSV they make about 60 tokens on average and 250 at most.
var lengths = []int{1, 1, 1, 2, 3, 4, 5, 8, 12, 24}

// mixed returns texts of many lengths, in no order of length.
func (p *place) mixed(n int) []string {
	texts := make([]string, n)
	next := 0
	for i := range texts {
		var sentences []string
		for range lengths[i%len(lengths)] {
			sentences = append(sentences, p.summary[next%len(p.summary)]+".")
			next += 3 // 8,000 is no multiple: all are used before one comes again
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
	smoke, keep  bool
	json, python string
	bin          string // folder with embedsidecar, bench-bare and plugins/
	major, again int    // again: rounds; 0: as many as usual
	only         []string
	rates        []int // of the part cost; none: its own
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
