package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// place is where everything is measured: one server with databases, and a folder for logs.
type place struct {
	options

	sizes
	pg      *testenv.Server
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
	"shared_buffers":           "256MB",
	"max_wal_size":             "8GB",
	"checkpoint_timeout":       "1h",
	"shared_preload_libraries": "",
}

func newPlace(ctx context.Context, o options, out io.Writer) (_ *place, err error) {
	p := &place{options: o, sizes: full, out: out, environ: plainEnviron(os.Environ())}
	if o.smoke {
		p.sizes = short
	}
	if o.again > 0 {
		p.rounds = o.again
	}
	if p.summary, err = readTexts(o.texts); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for logs: %w", err)
	}
	p.say("starting a server")
	if slices.Contains(o.only, costPart) {
		bin, _, err := testenv.FindServer(ctx, o.major)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(p.dir))
		}
		costServer(bin, o.server)
	}
	p.pg, err = testenv.Start(ctx, testenv.Options{Major: o.major, Fsync: true, Config: o.server})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	conn, err := pgx.Connect(ctx, p.pg.URL("", ""))
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&p.version)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, p.close()) //nolint:contextcheck // it ends the server also after ctx has ended
	}
	return p, nil
}

func (p *place) close() error {
	for _, pool := range p.pools {
		pool.Close()
	}
	if !p.keep {
		return errors.Join(p.pg.Close(), os.RemoveAll(p.dir))
	}
	p.say("logs are in %s", p.dir)
	log, err := os.ReadFile(p.pg.Log())
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "server.log"), log, 0o600)
	}
	return errors.Join(err, p.pg.Close())
}

func (p *place) machine() machine {
	return machine{CPUs: runtime.NumCPU(), PostgreSQL: p.version, OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// say tells what is going on.
func (p *place) say(format string, args ...any) { fmt.Fprintf(p.out, "bench: "+format+"\n", args...) }

// log returns the name of a new log file.
func (p *place) log(name string) string {
	p.logs++
	return filepath.Join(p.dir, fmt.Sprintf("%02d-%s.log", p.logs, name))
}

// database makes an empty database with pgvector.
func (p *place) database(ctx context.Context, name string, conns int32) (*pgxpool.Pool, error) {
	if err := p.admin(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, p.pg.URL(name, ""))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	_, err = conn.Exec(ctx, "CREATE EXTENSION vector")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, fmt.Errorf("make database %s: %w", name, err)
	}
	pool, err := database.Connect(ctx, p.pg.URL(name, "")+untracked, database.Options{
		MaxConns:        conns,
		ApplicationName: "bench",
	})
	if err != nil {
		return nil, err
	}
	p.pools = append(p.pools, pool)
	return pool, nil
}

// drop removes a database that nothing uses any more.
func (p *place) drop(ctx context.Context, pool *pgxpool.Pool) error {
	name := pool.Config().ConnConfig.Database
	if _, err := pool.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"); err != nil {
		return fmt.Errorf("drop the slots of %s: %w", name, err)
	}
	pool.Close()
	return p.admin(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

func (p *place) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.pg.URL("", ""))
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	_, err = conn.Exec(ctx, sql)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// libpq is an environment in which PostgreSQL's own programs find the server and a database.
func (p *place) libpq(name string) ([]string, error) {
	config, err := pgx.ParseConfig(p.pg.URL(name, ""))
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(p.pg.Addr())
	if err != nil {
		return nil, err
	}
	return append(slices.Clip(p.environ), "PGHOST="+host, "PGPORT="+port, "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+name, "PGSSLMODE=disable"), nil
}

// plainEnviron leaves out what would configure a program otherwise than this one means.
func plainEnviron(environ []string) []string {
	var plain []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		ours := strings.HasPrefix(name, "EMBEDSIDECAR_") && !strings.HasPrefix(name, "EMBEDSIDECAR_ONNXRUNTIME") &&
			!strings.HasPrefix(name, "EMBEDSIDECAR_MODEL")
		if !ours && !strings.HasPrefix(name, "PG") {
			plain = append(plain, e)
		}
	}
	return plain
}

// readTexts returns the last column of a CSV with a heading.
func readTexts(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer func() { _ = f.Close() }()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read texts of %s: %w", path, err)
	}
	const least = 100
	if len(records) < least {
		return nil, fmt.Errorf("read texts of %s: %d lines are too few", path, len(records))
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
		var b strings.Builder
		for range lengths[i%len(lengths)] {
			b.WriteString(p.summary[next%len(p.summary)])
			b.WriteString(". ")
			next += 3 // 8,000 is no multiple: all are used before one comes again
		}
		texts[i] = strings.TrimSpace(b.String())
	}
	return texts
}

// costServer is what the server needs so that this part can count: statements by pg_stat_statements, which is silent
// until it is asked for, and the moment of each commit.
func costServer(bin string, config map[string]string) {
	config["track_commit_timestamp"] = "on"
	for _, folder := range []string{"lib", filepath.Join("lib", "postgresql")} {
		if _, err := os.Stat(filepath.Join(bin, "..", folder, "pg_stat_statements.so")); err == nil {
			config["shared_preload_libraries"] = "pg_stat_statements"
			config["pg_stat_statements.track"] = "none"
			config["compute_query_id"] = "off"
			return
		}
	}
}
