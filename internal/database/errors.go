package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Kind is the reason why there is no connection.
type Kind string

// The kinds of connection errors.
const (
	BadURL      Kind = "bad_url"     // the URL cannot be parsed
	Unreachable Kind = "unreachable" // no answer, or it came too late; a retry may succeed
	Starting    Kind = "starting"    // the server starts, stops or recovers; a retry may succeed
	Full        Kind = "full"        // no connection or walsender is free; a retry may succeed
	Auth        Kind = "auth"        // unknown role, wrong password, or pg_hba.conf rejects us
	NoDatabase  Kind = "no_database" // the server has no such database
	Permission  Kind = "permission"  // the role lacks a privilege: CONNECT, or REPLICATION
	TLS         Kind = "tls"         // no encryption although required, or an untrusted certificate
	Standby     Kind = "standby"     // the server is read-only
	Pooler      Kind = "pooler"      // something between us and the server drops what we need
	// our objects, or objects attached to them, belong to a role that is not trusted
	Untrusted Kind = "untrusted"
	Other     Kind = "other"
)

// Error is a failure to connect. Its text names host, database and role, and never a password.
type Error struct {
	Kind Kind
	Err  error
	Hint []string // what to do, each a sentence or a statement to run
	// Trust are the owners whom --trust-owner would have to name.
	Trust []string
}

func (e *Error) Error() string { return "connect to database: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hints returns what to do.
func (e *Error) Hints() []string { return e.Hint }

// Owners are the owners that --trust-owner would have to name.
func (e *Error) Owners() []string { return e.Trust }

// Temporary reports whether a retry may succeed without a change of the configuration. A wrong password counts as
// temporary too: passwords are rotated on both sides, but never at the same moment.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case Unreachable, Starting, Full, Auth, Standby:
		return true
	case BadURL, NoDatabase, Permission, TLS, Pooler, Untrusted, Other:
		return false
	}
	return false
}

var directHint = []string{"replication needs a direct connection to the server: give its URL with --stream-url (EMBEDSIDECAR_STREAM_URL)"}

// unreadable returns an error of parsing without the text, except for the name of a missing file.
func unreadable(err error) error {
	e := &Error{
		Kind: BadURL, Err: errors.New(
			"the URL can be read neither as postgres://user:password@host:port/database nor as key=value pairs"),
		Hint: []string{"write : / ? # @ and % inside a password as %3A %2F %3F %23 %40 and %25"},
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		e.Err, e.Hint = fmt.Errorf("read a file that the URL names: %w", path), nil
	} else if strings.Contains(err.Error(), "sslmode is invalid") {
		e.Err = errors.New("the URL's sslmode is not disable, allow, prefer, require, verify-ca or verify-full")
		e.Hint = nil
	}
	return e
}

// refusedParameter reports whether a pooler refused a start-up parameter that every supported server knows.
func refusedParameter(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.Contains(strings.ToLower(pg.Message), "unsupported startup parameter")
}

// classify turns an error of pgx into *Error.
func classify(err error, cfg pgconn.Config) error {
	if done, ok := errors.AsType[*Error](err); ok {
		return done
	}
	if errors.Is(err, context.Canceled) {
		return err // the caller cancelled: not an error of the database
	}
	e := &Error{Kind: Other, Err: fmt.Errorf("role %q, database %q at %s: %w", cfg.User, cfg.Database, address(cfg),
		cause(err, address(cfg)))}
	var (
		pg     *pgconn.PgError
		netErr net.Error
	)
	text := err.Error()
	switch {
	case errors.As(err, &pg):
		e.Kind = serverKind(pg)
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err), cutOff(err):
		e.Kind = Unreachable // also for a TLS handshake without an answer, and a server that was just stopping
	case strings.Contains(text, "tls") || strings.Contains(text, "x509") || strings.Contains(text, "TLS"):
		e.Kind = TLS
	case strings.Contains(text, "read only connection"):
		e.Kind = Standby
	case errors.As(err, &netErr):
		e.Kind = Unreachable
	case strings.Contains(text, "unexpected EOF"), strings.Contains(text, "connection reset"),
		strings.Contains(text, "broken pipe"):
		e.Kind = Unreachable
	}
	e.Hint = kindHint(e.Kind, cfg)
	return e
}

// IsTransient reports whether an error, of a statement or of a connection, may go away by itself: no server, one that
// starts, stops or is full, a broken connection, or a lock timeout.
func IsTransient(err error) bool {
	if err == nil {
		return false
	}
	if known, ok := errors.AsType[*Error](Wrap(err)); ok {
		return known.Temporary()
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgerrcode.IsOperatorIntervention(pg.Code) || pgerrcode.IsConnectionException(pg.Code) ||
			pgerrcode.IsInsufficientResources(pg.Code) ||
			LockedOut(err) || pgerrcode.IsTransactionRollback(pg.Code)
	}
	_, file := errors.AsType[*fs.PathError](err) // its cause is also an error of the system
	_, network := errors.AsType[net.Error](err)
	return !file && (network || cutOff(err) || pgconn.SafeToRetry(err))
}

// cutOff reports whether the system, and not the peer's program, ended a connection or its attempt.
func cutOff(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func serverKind(pg *pgconn.PgError) Kind {
	if refusedParameter(pg) {
		return Pooler
	}
	switch pg.Code {
	case pgerrcode.InvalidPassword, pgerrcode.InvalidAuthorizationSpecification:
		return Auth
	case pgerrcode.InvalidCatalogName:
		return NoDatabase
	case pgerrcode.InsufficientPrivilege:
		return Permission
	case pgerrcode.TooManyConnections, pgerrcode.ConfigurationLimitExceeded:
		return Full
	case pgerrcode.CannotConnectNow, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown:
		return Starting
	case pgerrcode.ReadOnlySQLTransaction:
		return Standby
	}
	if pgerrcode.IsConnectionException(pg.Code) && pg.Code != pgerrcode.ProtocolViolation {
		return Unreachable
	}
	return Other
}

// Managed begins hints for servers that a provider runs.
const Managed = "on a managed server"

func kindHint(k Kind, cfg pgconn.Config) []string {
	switch k {
	case Unreachable:
		return []string{"is the server running at " + address(cfg) + ", and does a firewall let us through?"}
	case Starting:
		return []string{"the server is starting, stopping or recovering: retrying"}
	case Full:
		return []string{"raise max_connections (for the stream also max_wal_senders), or end unused sessions: SELECT pid, usename, application_name, state FROM pg_stat_activity;"}
	case Auth:
		if cfg.Password == "" {
			return []string{"no password was given: put it into PGPASSWORD, .pgpass, or a file that --database-url-file names"}
		}
		return []string{"check role and password in the URL (or its *_FILE, .pgpass, PGPASSWORD), and pg_hba.conf of the server"}
	case NoDatabase:
		return []string{"list the databases there are: SELECT datname FROM pg_database;"}
	case Permission:
		if cfg.RuntimeParams["replication"] != "" {
			return []string{
				fmt.Sprintf("as superuser: ALTER ROLE %s REPLICATION;", Quote(cfg.User)),
				Managed + ": GRANT rds_replication TO ...; (RDS), or ALTER ROLE ... REPLICATION; by the admin role (Cloud SQL, Azure)",
			}
		}
		return []string{fmt.Sprintf("as owner of the database: GRANT CONNECT ON DATABASE %s TO %s;", Quote(cfg.Database),
			Quote(cfg.User))}
	case TLS:
		return []string{"check sslmode and sslrootcert of the URL: require encrypts, verify-full also proves the server; a server without TLS needs sslmode=disable"}
	case Standby:
		return []string{"give the URL of the primary, or several hosts: postgres://host1,host2/database"}
	case Pooler:
		if cfg.RuntimeParams["replication"] != "" {
			return directHint
		}
		return []string{"use the address of the server itself"}
	case BadURL, Untrusted, Other:
	}
	return nil
}

// cause removes what pgconn repeats: role, database, and the common text of the attempts. There are several attempts
// when a host has several addresses, or when sslmode allows it to try with and without TLS. What the server said takes
// precedence.
func cause(err error, at string) error {
	inner := err
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok && connect.Unwrap() != nil {
		inner = connect.Unwrap()
	}
	attempts := []error{inner}
	if joined, ok := inner.(interface{ Unwrap() []error }); ok {
		attempts = joined.Unwrap()
	}
	if answered := slices.DeleteFunc(slices.Clone(attempts),
		func(e error) bool { _, ok := errors.AsType[*pgconn.PgError](e); return !ok }); len(answered) > 0 {
		attempts = answered
	}
	var texts []string
	for _, attempt := range attempts {
		if text := attemptText(attempt, at); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return toldError{err, strings.Join(texts, "; ")}
}

// attemptText returns the text of one attempt, without the address if the caller prints it anyway.
func attemptText(err error, at string) string {
	text := err.Error()
	pg, said := errors.AsType[*pgconn.PgError](err)
	name, unknown := errors.AsType[*net.DNSError](err)
	op, network := errors.AsType[*net.OpError](err)
	switch {
	case said:
		text = pg.Error()
	case unknown:
		text = name.Error()
	case network && op.Addr != nil && op.Addr.String() == at && op.Err != nil:
		text = op.Err.Error()
	case network:
		text = op.Error()
	default:
		if _, after, ok := strings.Cut(text, "): "); ok { // address (host): what happened
			text = after
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// toldError is an error with another text.
type toldError struct {
	error
	text string
}

func (e toldError) Error() string { return e.text }
func (e toldError) Unwrap() error { return e.error }

func address(cfg pgconn.Config) string {
	if strings.HasPrefix(cfg.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port)
	}
	return net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port))
}
