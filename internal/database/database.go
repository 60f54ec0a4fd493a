// Package database opens Postgres connections that all read and print values the same way.
//
// Keys and hashes are computed from the text that Postgres prints for a value, in the replication stream as well as in
// queries. That text depends on session settings, so all connections of this program are made here. A connection whose
// settings did not take effect is closed without being used.
package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Options says how to connect. The zero value is usable.
type Options struct {
	ApplicationName string // shown in pg_stat_activity; "" means embedsidecar
	// maximum size of the pool; 0: what the URL says (pool_max_conns), else 4 or the number of CPUs if more
	MaxConns       int32
	ConnectTimeout time.Duration // of one attempt; 0: what the URL says (connect_timeout), else 10 s
	// IdleInTransaction is how long one of our transactions may sit idle before the server ends the session. It keeps a
	// stopped sidecar from holding locks on users' rows. 0 means 15 s; negative means no limit.
	IdleInTransaction time.Duration
	// TrustedOwners are additional roles whose objects are used as if they were the connecting role's own; see Connect.
	TrustedOwners []string
	// Via is a connection string whose host, port, encryption and database replace those of the other: it bypasses a
	// pooler.
	Via string
	// Thrifty closes all connections after 0.1 s without use, instead of each after 30 s.
	Thrifty bool
	// Renew returns a connection string as its file has it now; nil: it is not in a file. Of it only the password is used.
	Renew func(dsn string) string
	// Patience is how long an answer may take before the pool checks whether the server works on it; 0 means 20 s.
	Patience time.Duration
	// CatalogOnly skips the trust check: the caller reads the catalog, and nothing in the schema embedsidecar.
	CatalogOnly bool
	Log         *slog.Logger // nil: silent
}

const (
	defaultApplicationName   = "embedsidecar"
	defaultConnectTimeout    = 10 * time.Second
	usualIdle                = 30 * time.Second
	thriftyIdle              = 100 * time.Millisecond
	defaultIdleInTransaction = 15 * time.Second
)

// formatting holds the settings by which a session prints and reads values. Poolers know some of these parameters and
// refuse others; see pooled. verifySession expects the same values, so it notices a pooler that drops them.
var formatting = map[string]string{
	"client_encoding":    "UTF8", // SQL_ASCII databases: see afterConnect
	"datestyle":          "ISO, MDY",
	"timezone":           "UTC",
	"intervalstyle":      "postgres",
	"extra_float_digits": "3",
	"bytea_output":       "hex",
	// Unqualified names in a user's text expression resolve in pg_catalog, whichever role runs it. If pg_temp were left
	// out, it would be searched first for tables and types, and a trigger may have made some.
	"search_path": OwnPath,
}

// OwnPath is the search_path of our sessions.
const OwnPath = "pg_catalog, pg_temp"

// conduct holds the other session settings.
var conduct = map[string]string{
	// A row hidden by row-level security must cause an error: taken for a deleted row, it would cost the user a vector.
	"row_security": "off",
	// Generic plans have turned a claim of a few rows into a scan of the queue.
	"plan_cache_mode": "force_custom_plan",
	"jit":             "off",
	// Shorter than deadlock_timeout: in a deadlock with a user, our statement fails first.
	"lock_timeout":                  "500ms",
	"default_transaction_isolation": "read committed",
	"default_transaction_read_only": "off",
	"idle_session_timeout":          "0", // the idle connections of a pool and held advisory locks are intended
	"standard_conforming_strings":   "on",
	// The server's names of types are compared, and texts and filters must mean the same in every session.
	"quote_all_identifiers": "off",
	"transform_null_equals": "off",
	"array_nulls":           "on",
	"xmloption":             "content",
	"xmlbinary":             "base64",
	// a default for applications would cancel statements that read a whole table; ours have contexts
	"statement_timeout": "0",
	// The server's side of dial: a session whose client host vanishes keeps its locks for 25 s, not for the 2 hours of
	// the default. The server ignores these settings on a Unix socket.
	"tcp_keepalives_idle":     strconv.Itoa(keepIdle),
	"tcp_keepalives_interval": strconv.Itoa(keepInterval),
	"tcp_keepalives_count":    strconv.Itoa(keepCount),
}

// A silent connection is probed after keepIdle seconds, every keepInterval seconds, and ends after keepCount failed
// probes.
const (
	keepIdle     = 10
	keepInterval = 5
	keepCount    = 3
)

// tracked are the parameters that PgBouncer carries over to whichever server connection it picks.
var tracked = map[string]bool{
	"client_encoding": true, "datestyle": true, "timezone": true, "application_name": true,
	"standard_conforming_strings": true,
}

// Connect opens a pool and tests it with one connection. It returns *Error when no connection can be made.
//
// Every connection has the settings of this package. If the extension is installed, it knows pgvector's types vector
// (as pgvector.Vector, also in arrays and in binary) and sparsevec (as pipeline.Sparse, to send). After CREATE
// EXTENSION, pool.Reset makes the connections again.
//
// Before it touches anything of ours, each connection checks that the schema embedsidecar and its contents belong to a
// trusted role: a superuser, the role itself, a role whose privileges include the role's, or one of TrustedOwners.
// Connections that a pool opens within 10 s of a check share it. Any other object in the schema, and any trigger, rule
// or view in place of a table, ends the connection with an error of kind Untrusted.
//
// A PgBouncer is recognized by the parameters that it refuses. The settings it cannot carry must then be defaults of
// the role, as the script of sql/roles.sql sets them; see Pooled and Conduct.
func Connect(ctx context.Context, dsn string, o Options) (*pgxpool.Pool, error) {
	cfg, err := parse(dsn, o)
	if err != nil {
		return nil, err
	}
	pool, err := open(ctx, cfg, o.Thrifty)
	if err == nil || !refusedParameter(err) {
		return pool, err
	}
	if o.Log != nil {
		o.Log.WarnContext(ctx, "connection pooler refuses session settings", "error", err.Error())
	}
	cfg, err = parse(dsn, o)
	if err != nil {
		return nil, err
	}
	for name := range cfg.ConnConfig.RuntimeParams {
		if !tracked[name] {
			delete(cfg.ConnConfig.RuntimeParams, name)
		}
	}
	// Statements prepared in one transaction may be missing in the next, which can run on another server connection.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return open(ctx, cfg, o.Thrifty)
}

func open(ctx context.Context, cfg *pgxpool.Config, thrifty bool) (*pgxpool.Pool, error) {
	after := tidy
	var pool *pgxpool.Pool
	if thrifty { // nothing else checks an unused pool, and there may be many
		unused := time.AfterFunc(thriftyIdle, func() { closeIdle(pool) }) //nolint:contextcheck // the pool calls it with none
		unused.Stop()                                                     // until the first use
		after = func(conn *pgx.Conn) {                                    //nolint:contextcheck // as above
			tidy(conn)
			unused.Reset(thriftyIdle)
		}
	}
	cfg.ConnConfig.Tracer = released(after)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err, cfg.ConnConfig.Config)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		pool.Close()
		return nil, classify(err, cfg.ConnConfig.Config)
	}
	conn.Release()
	return pool, nil
}

// closeIdle closes the unused connections of a pool.
func closeIdle(pool *pgxpool.Pool) {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit) //nolint:forbidigo // the pool calls it with none
	defer cancel()
	for _, idle := range pool.AcquireAllIdle(ctx) {
		_ = idle.Hijack().Close(ctx) // the server may be gone
	}
}

// Pooled reports whether the pool connects to a pooler instead of a server. Session state (LISTEN, advisory locks,
// temporary tables, SET) may then be used only within one transaction.
func Pooled(pool *pgxpool.Pool) bool {
	return !direct(pool.Config().ConnConfig)
}

// direct reports whether connections of a configuration reach a server: a pooler carries few settings.
func direct(c *pgx.ConnConfig) bool {
	_, carried := c.RuntimeParams["search_path"]
	return carried
}

// Wrap returns err as *Error if it is a failure to get a connection. Errors of a pool that reconnects then read like
// those of Connect. Any other error is returned unchanged.
func Wrap(err error) error {
	_, ours := errors.AsType[*Error](err)
	connect, failed := errors.AsType[*pgconn.ConnectError](err)
	if ours || !failed {
		return err
	}
	return classify(err, *connect.Config)
}

// parse reads a URL or key=value pairs, as libpq does, and adds the settings. Its error never repeats the text, because
// text that cannot be parsed cannot be redacted either.
func parse(dsn string, o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, unreadable(err)
	}
	if o.MaxConns > 0 {
		cfg.MaxConns = o.MaxConns
	}
	// Connections opened for a burst of work are closed soon after it.
	if !strings.Contains(dsn, "pool_max_conn_idle_time") {
		cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = usualIdle, usualIdle/2
	}
	cfg.MaxConnLifetimeJitter = cfg.MaxConnLifetime / 10
	c := cfg.ConnConfig
	if o.Via != "" {
		via, err := pgxpool.ParseConfig(o.Via)
		if err != nil {
			return nil, unreadable(err)
		}
		c.Host, c.Port, c.Database, c.TLSConfig, c.SSLNegotiation, c.Fallbacks = via.ConnConfig.Host, via.ConnConfig.Port,
			via.ConnConfig.Database,
			via.ConnConfig.TLSConfig, via.ConnConfig.SSLNegotiation, via.ConnConfig.Fallbacks
	}
	configure(&c.Config, o)
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		renew(&c.Config, dsn, o)
		return nil
	}
	open := &sockets{patience: cmp.Or(o.Patience, defaultPatience), config: c, open: map[*socket]struct{}{}}
	c.DialFunc = open.dial
	looks := newLooks()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[trustedKey] = o.TrustedOwners
		server, err := afterConnect(ctx, conn)
		if err != nil {
			return err
		}
		if open.know(conn.PgConn(), server); o.CatalogOnly {
			return nil
		}
		return looks.trust(ctx, conn)
	}
	return cfg, nil
}

// renew reads the password again, from the file of the connection string or the password file: it may have been changed
// since the program started.
func renew(c *pgconn.Config, dsn string, o Options) {
	if o.Renew != nil {
		dsn = o.Renew(dsn)
	}
	now, err := pgconn.ParseConfig(dsn)
	if err != nil || now.Password == "" || now.User != c.User {
		return
	}
	if o.Via != "" || now.Host == c.Host && now.Port == c.Port {
		c.Password = now.Password
	}
}

// configure applies what pool connections and replication connections have in common.
func configure(c *pgconn.Config, o Options) {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	if o.ConnectTimeout > 0 {
		c.ConnectTimeout = o.ConnectTimeout
	}
	c.DialFunc = dial
	if c.ValidateConnect == nil {
		// With several hosts in the URL this finds the primary. With one host, a standby causes a clear error.
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	c.OnNotification = notified
	if c.RuntimeParams == nil {
		c.RuntimeParams = map[string]string{}
	}
	// Names are case-insensitive in Postgres: another spelling by the user would be sent in addition to ours.
	for name, value := range c.RuntimeParams {
		if lower := strings.ToLower(name); lower != name {
			delete(c.RuntimeParams, name)
			c.RuntimeParams[lower] = value
		}
	}
	for _, settings := range []map[string]string{formatting, conduct} {
		maps.Copy(c.RuntimeParams, settings)
	}
	idle := cmp.Or(o.IdleInTransaction, defaultIdleInTransaction)
	c.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(max(idle.Milliseconds(), 0))
	switch {
	case o.ApplicationName != "":
		c.RuntimeParams["application_name"] = o.ApplicationName
	case c.RuntimeParams["application_name"] == "":
		c.RuntimeParams["application_name"] = defaultApplicationName
	}
}

// dial opens a connection. With the default of 2 hours, a connection to a vanished server would look healthy.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepIdle * time.Second, Interval: keepInterval * time.Second, Count: keepCount,
	}}).DialContext(ctx, network, addr)
}

// afterConnect completes a new connection of the pool: encoding, check of the settings, types. It returns when the
// server was started.
func afterConnect(ctx context.Context, conn *pgx.Conn) (server string, err error) {
	ascii, err := rawEncoding(ctx, conn.PgConn())
	if err != nil {
		return "", err
	}
	if direct(conn.Config()) { // a pooler passes the session on to other clients
		if err := unlimited(ctx, conn.PgConn()); err != nil {
			return "", err
		}
	}
	if err := checkSession(ctx, conn, ascii); err != nil {
		return "", err
	}
	var (
		masked                             string
		vector, array, sparse, sparseArray uint32
	)
	err = conn.QueryRow(ctx, `SELECT coalesce(t.oid, 0), coalesce(t.typarray, 0), coalesce(s.oid, 0),
		coalesce(s.typarray, 0), pg_catalog.pg_postmaster_start_time()::text, coalesce(`+maskedBy+`, '')
		FROM (VALUES (1)) AS one(n)
		LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'vector'
		LEFT JOIN pg_catalog.pg_type t ON t.typnamespace = e.extnamespace AND t.typname = 'vector'
		LEFT JOIN pg_catalog.pg_type s ON s.typnamespace = e.extnamespace AND s.typname = 'sparsevec'`,
	).Scan(&vector, &array, &sparse, &sparseArray, &server, &masked)
	if err != nil {
		return "", fmt.Errorf("look up a session's types: %w", err)
	}
	if err := unmasked(conn, masked); err != nil {
		return "", err
	}
	registerVectors(conn.TypeMap(), vector, array, sparse, sparseArray)
	return server, tablesOnly(ctx, conn)
}

// tablesOnly makes the server refuse views and foreign tables in place of tables, where it can (PostgreSQL 17, and the
// last minor releases before). The owner of a table may replace it at any moment, and the view's functions would run
// with our role's privileges. It also makes the server end a session whose connection we have closed: functions may
// catch a cancellation and go on.
func tablesOnly(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("SELECT "+restricts+", "+endsWithClient, restricted, "false", "false"))
	return wrap.Errorf(err, "set up a session")
}

// endsWithClient is an expression that makes the server look while it works whether its client is still there, for the
// transaction or the session. A server on Windows cannot.
const endsWithClient = "CASE WHEN pg_catalog.version() !~* 'windows|mingw|visual'" +
	" THEN pg_catalog.set_config('client_connection_check_interval', '5s', %s) END"

// restricts is an expression that makes the server refuse some kinds of relations, such as restricted, for the
// transaction or the session, where it can.
const (
	restricts = "CASE WHEN pg_catalog.current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL" +
		" THEN pg_catalog.set_config('restrict_nonsystem_relation_kind', '%s', %s) END"
	restricted = "view, foreign-table"
)

// unlimited removes a transaction_timeout that is a default of the role or the database. A start-up packet cannot do
// so, because versions before 17 do not know the setting. To a walsender, every transaction it decodes counts.
func unlimited(ctx context.Context, conn *pgconn.PgConn) error {
	major, err := majorOf(conn)
	if err != nil || major < 17 {
		return err
	}
	_, err = conn.Exec(ctx, "SET transaction_timeout = 0").ReadAll()
	return wrap.Errorf(err, "set transaction_timeout")
}

// majorOf returns the major version of the server.
func majorOf(conn *pgconn.PgConn) (major int, err error) {
	_, err = fmt.Sscanf(conn.ParameterStatus("server_version"), "%d", &major)
	return major, wrap.Errorf(err, "read server_version")
}

// rawEncoding switches a connection to a SQL_ASCII database to raw bytes, and reports whether it did. Asked for UTF-8,
// the server would refuse to send invalid values, which such a database may hold.
func rawEncoding(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	if conn.ParameterStatus("server_encoding") != "SQL_ASCII" {
		return false, nil
	}
	if _, err := conn.Exec(ctx, "SET client_encoding = 'SQL_ASCII'").ReadAll(); err != nil {
		return false, fmt.Errorf("set client_encoding: %w", err)
	}
	return true, nil
}

// checked names the settings in the order in which afterConnect reads them.
var checked = [...]string{
	"datestyle", "timezone", "intervalstyle", "extra_float_digits", "bytea_output", "search_path", "client_encoding",
	"row_security",                // if on, rows hidden by a policy would be taken for deleted ones
	"standard_conforming_strings", // if off, backslashes in literals would be escapes
}

// sources are where the search_path of our sessions may come from: the start-up packet, the role, or SET.
var sources = []string{"client", "user", "database user", "session"}

// checkSession reads the settings of a session and verifies them. It names no operator and no type: behind a pooler
// they would be looked up by a search_path that the database's owner may have set.
func checkSession(ctx context.Context, conn *pgx.Conn, ascii bool) error {
	read := "SELECT pg_catalog.current_setting('" + strings.Join(checked[:], "'), pg_catalog.current_setting('") +
		"'), s.source FROM pg_catalog.pg_settings AS s WHERE pg_catalog.texteq(s.name, 'search_path')"
	results, err := conn.PgConn().Exec(ctx, read).ReadAll()
	if err != nil {
		return fmt.Errorf("read session settings: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("read session settings: there are none")
	}
	got := lists.Map(results[0].Rows[0], func(v []byte) string { return string(v) })
	return verifySession(got[:len(checked)], got[len(checked)], ascii, conn.Config().User)
}

// verifySession returns *Error of kind Pooler when a setting has not the requested value. A server always applies it; a
// pooler that ignores start-up parameters does not. source is where the search_path comes from: a database's owner may
// change that of the database at any moment, and a pooler begins sessions unnoticed.
func verifySession(got []string, source string, ascii bool, role string) error {
	var wrong []string
	for i, name := range checked {
		want, have := cmp.Or(formatting[name], conduct[name]), got[i]
		switch name {
		case "client_encoding":
			if ascii {
				want = "SQL_ASCII"
			}
		case "datestyle":
			// The order of day and month only matters for reading dates.
			have, want = strings.Split(have, ",")[0], "ISO"
		case "extra_float_digits":
			if have == "1" || have == "2" { // since PostgreSQL 12 all print the shortest exact digits
				have = want
			}
		case "timezone":
			if have == "Etc/UTC" || have == "GMT" {
				have = want
			}
		case "search_path":
			if !slices.Contains(sources, source) {
				have = source
			}
		}
		if !strings.EqualFold(have, want) {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	sort.Strings(wrong)
	return &Error{
		Kind: Pooler, Err: fmt.Errorf(
			"a connection pooler drops the settings %s, and they are not defaults of role %q",
			strings.Join(wrong, ", "), role),
		Hint: []string{
			"behind a pooler the sidecar needs a role of its own that has them: embedsidecar roles prints the script (changed for an application's role they would break the application)",
			"then let the pooler reopen its server connections (RECONNECT in PgBouncer's console)",
			"or use the address of the server itself",
		},
	}
}

// Which identifies a database, whatever address leads to it. It stays the same after a failover.
func Which(ctx context.Context, pool *pgxpool.Pool) (which string, err error) {
	err = pool.QueryRow(ctx, sqlfiles.Query("which_database")).Scan(&which)
	return which, wrap.Errorf(err, "ask which database it is")
}
