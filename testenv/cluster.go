package testenv

import (
	"context"
	"crypto/rand"
	_ "embed" // for back.sql
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// here is part of the names of all objects that this process makes on a server, which other processes may share. It is
// random, because pids are not unique across containers.
var here = strings.ToLower(rand.Text()[:10])

// counter numbers the objects of this process.
type counter struct{ n atomic.Int64 }

func (c *counter) next() string { return fmt.Sprintf("t_%s_%d", here, c.n.Add(1)) }

// execWithRetry executes a statement and retries temporary conflicts: a terminated session that still exists,
// autovacuum, or another test process that does the same.
func execWithRetry(ctx context.Context, conn *pgx.Conn, statement string, args ...any) error {
	for {
		_, err := conn.Exec(ctx, statement, args...)
		if !isState(err, pgerrcode.ObjectInUse, pgerrcode.InternalError) || isState(err, pgerrcode.InternalError) &&
			!strings.Contains(err.Error(), "concurrently") {
			return err
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// Connect uses a running server. The role of the connection string must be a superuser, and wal_level logical. The
// server's pg_hba.conf must allow password logins of the roles made here.
func Connect(ctx context.Context, dsn string) (*Server, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsnEnv, err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsnEnv, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var version int
	var level string
	var super, vector bool
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'),
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user), EXISTS (SELECT FROM pg_available_extensions
		WHERE name = 'vector')`).
		Scan(&version, &level, &super, &vector); err != nil {
		return nil, fmt.Errorf("%s: %w", dsnEnv, err)
	}
	var errs []error
	if level != "logical" {
		errs = append(errs, fmt.Errorf("wal_level is %s: ALTER SYSTEM SET wal_level = logical, then restart the server",
			level))
	}
	if !super {
		errs = append(errs, fmt.Errorf("role %s is no superuser: ALTER ROLE %s SUPERUSER", config.User,
			pgx.Identifier{config.User}.Sanitize()))
	}
	if !vector {
		errs = append(errs, errors.New("pgvector is not installed"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", dsnEnv, err)
	}
	s := &Server{
		major: version / 10000, host: config.Host, port: int(config.Port), admin: config.User, password: config.Password,
		roleWord: "embedsidecar-test", database: config.Database, params: "sslmode=prefer",
	}
	return s, nil
}

// leave drops what was made on an external server.
func (s *Server) leave() error {
	s.prepare.Lock()
	defer s.prepare.Unlock()
	if s.template == "" {
		return nil
	}
	ctx, cancel := contextFor(startTimeout)
	defer cancel()
	err := s.on(ctx, "", func(conn *pgx.Conn) error {
		return errors.Join(execWithRetry(ctx, conn, "DROP DATABASE IF EXISTS "+s.template),
			execWithRetry(ctx, conn, "DROP DATABASE IF EXISTS "+bare(s.template)))
	})
	s.template = ""
	return err
}

// on runs do on a connection of the superuser.
func (s *Server) on(ctx context.Context, database string, do func(conn *pgx.Conn) error) error {
	return onURL(ctx, s.URL(database, ""), do)
}

func onURL(ctx context.Context, url string, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	return do(conn)
}

// Template returns the name of the database that DB clones, and makes it if necessary. It has the extension vector and
// the migrated schema embedsidecar; Owner owns all but the extension.
func (s *Server) Template(ctx context.Context) (string, error) {
	s.prepare.Lock()
	defer s.prepare.Unlock()
	if s.template != "" {
		return s.template, nil
	}
	name := fmt.Sprintf("embedsidecar_template_%s_%x", here, sqlfiles.Digest())
	err := s.on(ctx, "", func(conn *pgx.Conn) error {
		if err := s.makeOwner(ctx, conn); err != nil {
			return fmt.Errorf("make role %s: %w", Owner, err)
		}
		for _, one := range []struct {
			name, from string
			fill       func(ctx context.Context, database string) error
		}{{bare(name), "template0", s.extend}, {name, bare(name), s.migrate}} {
			err := execWithRetry(ctx, conn, "DROP DATABASE IF EXISTS "+one.name)
			if err == nil {
				err = execWithRetry(ctx, conn, fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", one.name, Owner, one.from))
			}
			if err == nil {
				err = one.fill(ctx, one.name)
			}
			if err != nil {
				return fmt.Errorf("make the template database: %w", err)
			}
		}
		return nil
	})
	if err == nil {
		s.template = name
	}
	return s.template, err
}

// bare is the template of empty databases beside a template.
func bare(template string) string { return template + "_bare" }

func (s *Server) makeOwner(ctx context.Context, conn *pgx.Conn) error {
	return execWithRetry(ctx, conn, fmt.Sprintf(`DO $$
BEGIN
	CREATE ROLE %[1]s;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
ALTER ROLE %[1]s LOGIN REPLICATION PASSWORD '%[2]s'`, Owner, s.roleWord))
}

// extend gives a database the extension vector.
func (s *Server) extend(ctx context.Context, name string) error {
	return s.on(ctx, name, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE EXTENSION vector")
		return err
	})
}

// migrate creates the schema embedsidecar in a database.
func (s *Server) migrate(ctx context.Context, name string) error {
	return onURL(ctx, s.URL(name, Owner), func(conn *pgx.Conn) error { return Migrate(ctx, conn) })
}

// Migrate creates the schema embedsidecar in its newest version.
func Migrate(ctx context.Context, db interface {
	Begin(ctx context.Context) (pgx.Tx, error)
},
) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return sqlfiles.Upgrade(ctx, tx) })
}

//go:embed back.sql
var back string

// TakeBack reverts the schema embedsidecar to an earlier version (back.sql), as its owner.
func (d *Database) TakeBack() {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.URL(Owner))
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(d.t.Context())) }()
	Eventually(d.t, startTimeout, func() (bool, string) {
		_, err := conn.PgConn().Exec(d.t.Context(), back).ReadAll()
		if err != nil && !isState(err, pgerrcode.DeadlockDetected) {
			d.t.Fatalf("take the schema back: %v", err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// NewDatabase makes a database owned by Owner: a clone of the template, or an empty one with only the extension vector.
// encoding "" is the server's.
func (s *Server) NewDatabase(ctx context.Context, empty bool, encoding string) (string, error) {
	template, err := s.Template(ctx)
	if err != nil {
		return "", err
	}
	name := s.databases.next()
	switch {
	case encoding != "":
		template = fmt.Sprintf("template0 ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C'", encoding)
	case empty:
		template = bare(template)
	}
	if s.copies {
		template += " STRATEGY file_copy"
	}
	err = s.on(ctx, "", func(conn *pgx.Conn) error {
		return execWithRetry(ctx, conn, fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", name, Owner, template))
	})
	if err == nil && encoding != "" {
		err = s.extend(ctx, name)
	}
	if err != nil {
		return "", fmt.Errorf("make a test database: %w", err)
	}
	return name, nil
}

// DropDatabase drops a database with its slots. An active slot blocks DROP DATABASE, even with FORCE, so it first
// forbids connections, terminates the walsenders and drops the slots.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	quoted := pgx.Identifier{name}.Sanitize()
	err := s.on(ctx, "", func(conn *pgx.Conn) error {
		if err := execWithRetry(ctx, conn, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", quoted)); err != nil {
			return err
		}
		for {
			left, err := dropSlots(ctx, conn, name)
			if err != nil {
				return err
			}
			if left == 0 {
				break
			}
			if !sleep.For(ctx, 5*time.Millisecond) {
				return fmt.Errorf("%d slots are still active: %w", left, ctx.Err())
			}
		}
		if err := s.endPrepared(ctx, conn, name); err != nil {
			return err
		}
		return execWithRetry(ctx, conn, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", quoted))
	})
	return wrap.Errorf(err, "drop database %s", name)
}

// dropSlots drops the inactive slots of a database, terminates the walsenders of the others and returns their number.
func dropSlots(ctx context.Context, conn *pgx.Conn, database string) (int, error) {
	rows, _ := conn.Query(ctx, `SELECT slot_name::text, coalesce(active_pid, 0) FROM pg_replication_slots WHERE database = $1`, database)
	type slot struct {
		Name string
		PID  int32
	}
	slots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
	if err != nil {
		return 0, err
	}
	left := 0
	for _, one := range slots {
		statement, arg := `SELECT pg_drop_replication_slot($1)`, any(one.Name)
		if one.PID != 0 {
			statement, arg = `SELECT pg_terminate_backend($1)`, one.PID
			left++
		}
		// became active or was dropped meanwhile
		if _, err := conn.Exec(ctx, statement, arg); err != nil && !isState(err, pgerrcode.ObjectInUse,
			pgerrcode.UndefinedObject) {
			return 0, err
		}
	}
	return left, nil
}

// endPrepared rolls back prepared transactions, which block DROP DATABASE.
func (s *Server) endPrepared(ctx context.Context, admin *pgx.Conn, database string) error {
	var gids []string
	if err := admin.QueryRow(ctx, `SELECT coalesce(array_agg(gid), '{}') FROM pg_prepared_xacts WHERE database = $1`,
		database).Scan(&gids); err != nil || len(gids) == 0 {
		return err
	}
	// ROLLBACK PREPARED only works inside the database.
	if err := execWithRetry(ctx, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true",
		pgx.Identifier{database}.Sanitize())); err != nil {
		return err
	}
	return s.on(ctx, database, func(inside *pgx.Conn) error {
		for _, gid := range gids {
			if _, err := inside.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'"); err != nil {
				return err
			}
		}
		return nil
	})
}
