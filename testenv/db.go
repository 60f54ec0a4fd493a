package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// queryTimeout bounds every statement of the helpers, so that a stuck lock fails the test.
const queryTimeout = 5 * time.Minute

// Database is a database for one test. It is dropped at the test's end, with its slots and roles.
type Database struct {
	Name   string
	Server *Server
	Pool   *pgxpool.Pool // as Owner, the owner of the database, not a superuser

	t     testing.TB
	mu    sync.Mutex
	super *pgxpool.Pool
	roles int
	slots int
	run   runRoles // of the last RunRole
}

// runRoles are the roles of sql/roles.sql.
type runRoles struct{ work, stream, reader, operator, searcher string }

// Option is an option of DB.
type Option func(*settings)

type settings struct {
	server   *Server
	major    int
	empty    bool
	encoding string
}

// On puts the database on the test's own server.
func On(s *Server) Option { return func(o *settings) { o.server = s } }

// Major puts it on the shared server of this major version.
func Major(major int) Option { return func(o *settings) { o.major = major } }

// Empty omits the schema embedsidecar: the state before init.
func Empty() Option { return func(o *settings) { o.empty = true } }

// Encoding makes it Empty, in this encoding and with collation C.
func Encoding(encoding string) Option {
	return func(o *settings) { o.empty, o.encoding = true, encoding }
}

// DB returns a new database for this test, with the extension vector and the migrated schema embedsidecar. By default
// it is on the shared server of the newest major.
func DB(t testing.TB, options ...Option) *Database {
	t.Helper()
	var o settings
	for _, option := range options {
		option(&o)
	}
	if o.server == nil {
		o.server = Shared(t, o.major)
	}
	ctx, cancel := contextFor(startTimeout)
	defer cancel()
	name, err := o.server.NewDatabase(ctx, o.empty, o.encoding)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("database", name) // for reading the server's log and statistics
	d := &Database{Name: name, Server: o.server, t: t}
	t.Cleanup(d.drop)
	d.Pool = d.pool(Owner)
	return d
}

func (d *Database) pool(user string) *pgxpool.Pool {
	d.t.Helper()
	config, err := pgxpool.ParseConfig(d.URL(user))
	if err != nil {
		d.t.Fatal(err)
	}
	config.MaxConns = 16 // workloads have several writers; connections are made when needed
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		d.t.Fatal(err)
	}
	return pool
}

func (d *Database) drop() {
	d.t.Helper()
	d.mu.Lock()
	super, roles := d.super, d.roles
	d.mu.Unlock()
	d.closePool(d.Pool)
	d.closePool(super)
	if d.Server.bin != "" && d.Server.running() == nil {
		return // its server is stopped, and will be removed
	}
	ctx, cancel := contextFor(startTimeout)
	defer cancel()
	if err := d.Server.DropDatabase(ctx, d.Name); err != nil {
		d.t.Error(err)
		return
	}
	if roles == 0 {
		return
	}
	err := d.Server.on(ctx, "", func(conn *pgx.Conn) (err error) {
		for i := range roles {
			err = errors.Join(err, execWithRetry(ctx, conn, "DROP ROLE IF EXISTS "+d.roleName(i+1)))
		}
		return err
	})
	if err != nil {
		d.t.Errorf("drop roles: %v", err)
	}
}

// closePool closes a pool. It does not wait for ever for a transaction that a failed test has left open.
func (d *Database) closePool(pool *pgxpool.Pool) {
	d.t.Helper()
	if pool == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(stopTimeout):
		d.t.Errorf("the test still uses a connection to database %s", d.Name)
	}
}

// URL returns a connection string with password for Owner ("" too), for Superuser or for a role made by Role or
// RunRole.
func (d *Database) URL(user string) string { return d.URLVia(d.Server.Addr(), user) }

// URLVia is URL through a proxy.
func (d *Database) URLVia(addr, user string) string {
	switch user {
	case "":
		user = Owner
	case Superuser:
		user = d.Server.admin
	}
	return d.Server.URLVia(addr, d.Name, user)
}

// Super returns a pool of the superuser.
func (d *Database) Super() *pgxpool.Pool {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.super == nil {
		d.super = d.pool(Superuser)
	}
	return d.super
}

// Move switches to the database on another server, such as a promoted standby.
func (d *Database) Move(s *Server) {
	d.t.Helper()
	d.mu.Lock()
	super := d.super
	d.super = nil
	d.mu.Unlock()
	d.Pool.Close()
	if super != nil {
		super.Close()
	}
	d.Server = s
	d.Pool = d.pool(Owner)
}

// Twin is the same database on a copy of its server. At its end only the connections are closed.
func (d *Database) Twin(s *Server) *Database {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	twin := &Database{
		Name: d.Name, Server: s, t: d.t, roles: d.roles, slots: d.slots, run: d.run,
	}
	twin.Pool = twin.pool(Owner)
	d.t.Cleanup(func() {
		twin.Pool.Close()
		if twin.super != nil {
			twin.super.Close()
		}
	})
	return twin
}

// MustExec runs a statement as Owner and returns the number of affected rows. Without arguments it may be several
// statements, which run in one transaction.
func (d *Database) MustExec(sql string, args ...any) int64 {
	d.t.Helper()
	return d.exec(d.Pool, sql, args)
}

// MustExecSuper is MustExec as superuser.
func (d *Database) MustExecSuper(sql string, args ...any) int64 {
	d.t.Helper()
	return d.exec(d.Super(), sql, args)
}

// Open begins a transaction of Owner and returns it with its ID, as the WAL has it. It is rolled back at the end of the
// test, unless it ended before.
func (d *Database) Open() (tx pgx.Tx, xid uint32) {
	d.t.Helper()
	tx, err := d.Pool.Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	const current = `SELECT (pg_current_xact_id()::text::bigint & 4294967295)::text::xid`
	if err := tx.QueryRow(d.t.Context(), current).Scan(&xid); err != nil {
		d.t.Fatal(err)
	}
	return tx, xid
}

func (d *Database) exec(pool *pgxpool.Pool, sql string, args []any) int64 {
	d.t.Helper()
	ctx, cancel := contextFor(queryTimeout)
	defer cancel()
	tag, err := pool.Exec(ctx, sql, args...)
	if err != nil {
		d.t.Fatalf("exec %s: %v", short(sql), err)
	}
	return tag.RowsAffected()
}

// Value returns the one value of a query's one row.
func Value[T any](d *Database, sql string, args ...any) T {
	d.t.Helper()
	values := Values[T](d, sql, args...)
	if len(values) != 1 {
		d.t.Fatalf("query %s: got %d rows, want 1", short(sql), len(values))
	}
	return values[0]
}

// Values returns the one column of a query.
func Values[T any](d *Database, sql string, args ...any) []T {
	d.t.Helper()
	return collect(d, sql, args, pgx.RowTo[T])
}

// Rows returns a query's rows as structs, columns by position.
func Rows[T any](d *Database, sql string, args ...any) []T {
	d.t.Helper()
	return collect(d, sql, args, pgx.RowToStructByPos[T])
}

func collect[T any](d *Database, sql string, args []any, read pgx.RowToFunc[T]) []T {
	d.t.Helper()
	ctx, cancel := contextFor(queryTimeout)
	defer cancel()
	rows, err := d.Pool.Query(ctx, sql, args...)
	if err != nil {
		d.t.Fatalf("query %s: %v", short(sql), err)
	}
	values, err := pgx.CollectRows(rows, read)
	if err != nil {
		d.t.Fatalf("query %s: %v", short(sql), err)
	}
	return values
}

// SlotName returns a unique slot name, since slots belong to the whole server. The slot is dropped with the database.
func (d *Database) SlotName() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots++
	return fmt.Sprintf("%s_s%d", d.Name, d.slots)
}

// Slot makes a pgoutput slot and returns its name.
func (d *Database) Slot() string {
	d.t.Helper()
	name := d.SlotName()
	d.MustExec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, name)
	return name
}

// Role makes a role with LOGIN and these attributes ("REPLICATION", "BYPASSRLS", "") and returns its name, for URL.
func (d *Database) Role(attributes string) string {
	d.t.Helper()
	name := d.nextRole()
	d.MustExecSuper(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' %s", name, d.Server.roleWord, attributes))
	return name
}

// RunRole makes the two roles of sql/roles.sql, under unique names: the working role, with the privileges that these
// pipelines need, and the streaming role (StreamRole). It returns the name of the working role.
func (d *Database) RunRole(pipelines ...pipeline.Pipeline) string {
	d.t.Helper()
	r := runRoles{d.nextRole(), d.nextRole(), d.nextRole(), d.nextRole(), d.nextRole()}
	d.MustExecSuper(sqlfiles.Roles(r.work, r.stream, r.reader, r.operator, r.searcher))
	for _, role := range []string{r.work, r.stream, r.reader, r.operator, r.searcher} {
		d.MustExecSuper(fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD '%s'", role, d.Server.roleWord))
	}
	d.mu.Lock()
	d.run = r
	d.mu.Unlock()
	for _, p := range pipelines {
		d.Grant(r.work, p)
	}
	return r.work
}

func (d *Database) lastRoles() runRoles {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run
}

// SQLRoles returns the reader and the operator role of the last RunRole. They may log in.
func (d *Database) SQLRoles() (reader, operator string) {
	r := d.lastRoles()
	return r.reader, r.operator
}

// SearcherRole returns the role of the last RunRole that may only search by SQL. It may log in, but read no table.
func (d *Database) SearcherRole() string { return d.lastRoles().searcher }

// StreamRole returns the role of the last RunRole that may only replicate.
func (d *Database) StreamRole() string { return d.lastRoles().stream }

// Grant grants a role the privileges that a pipeline needs, as in sql/roles.sql.
func (d *Database) Grant(role string, p pipeline.Pipeline) {
	d.t.Helper()
	into := cmp.Or(p.IntoSchema, p.Schema)
	d.MustExecSuper(fmt.Sprintf("GRANT USAGE ON SCHEMA %s, %s TO %s", pgx.Identifier{p.Schema}.Sanitize(),
		pgx.Identifier{into}.Sanitize(), role))
	for _, link := range p.Links() {
		j := link.Table()
		d.MustExecSuper(fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT (%s) ON %s TO %[2]s",
			pgx.Identifier{j.Schema}.Sanitize(), role, columnList(j.Uses), pgx.Identifier{j.Schema, j.Table}.Sanitize()))
	}
	columns := slices.Concat(p.Watched, p.Columns)
	for _, key := range p.Key {
		columns = append(columns, key.Name)
	}
	if !p.InSource() {
		d.MustExecSuper(fmt.Sprintf("GRANT SELECT (%s) ON %s TO %s", columnList(columns), p.Source(), role))
		d.MustExecSuper(fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s", p.Into(), role))
		return
	}
	d.MustExecSuper(fmt.Sprintf("GRANT SELECT (%s), UPDATE (%s) ON %s TO %s", columnList(append(columns, p.IntoColumn)),
		pgx.Identifier{p.IntoColumn}.Sanitize(), p.Source(), role))
}

// columnList lists columns without duplicates, which GRANT refuses.
func columnList(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return strings.Join(lists.Map(names, func(name string) string { return pgx.Identifier{name}.Sanitize() }), ", ")
}

func (d *Database) nextRole() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roles++
	return d.roleName(d.roles)
}

func (d *Database) roleName(n int) string { return fmt.Sprintf("%s_r%d", d.Name, n) }

func isState(err error, states ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(states, pgErr.Code)
}

// short is the beginning of a statement, for failure messages.
func short(sql string) string {
	sql = strings.Join(strings.Fields(sql), " ")
	if runes := []rune(sql); len(runes) > 120 {
		return string(runes[:120]) + "..."
	}
	return sql
}
