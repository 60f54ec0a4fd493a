package sqlfiles

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// FirstVersion is the oldest version of the schema that Upgrade can upgrade: that of the first release.
const FirstVersion = 36

// Version is the version that Upgrade leads to: that of the last file in tables.
var Version = func() int {
	names := Tables(0)
	return versionOf(names[len(names)-1])
}()

// ErrBeforeFirst reports that a program from before the first release made the schema, which cannot be upgraded.
var ErrBeforeFirst = errors.New("the schema embedsidecar is of a program before the first release")

// wholes are the comments, functions and views in the order of their creation. Each upgrade creates all of them again.
var wholes = []string{
	"comments",
	"functions/budgets", "functions/batches", "functions/wait", "functions/states", "functions/jobs", "functions/history",
	"functions/actions",
	"functions/explain", "functions/notify", "functions/search", "functions/hint", "functions/generations",
	"functions/requests", "functions/configuration",
	"views/status", "views/progress", "views/tasks", "views/dead_letters", "views/errors", "views/slots", "views/workers",
	"views/pipelines", "views/generations", "views/health", "views/audit", "views/row_state", "views/lanes",
	"views/indexes", "views/configuration", "views/requests", "views/finished_tasks",
}

// Tables returns the names of the files of tables after a version, such as 0038_counters.sql, oldest first.
func Tables(version int) []string {
	entries, err := files.ReadDir("tables")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	var names []string
	for _, e := range entries {
		if versionOf(e.Name()) > version {
			names = append(names, e.Name())
		}
	}
	return names
}

// Upgrade creates our schema, or upgrades it to Version, in this transaction: tables by the numbered files, all
// functions and views, and rights for the roles that already have some. The objects belong to the schema's owner. One
// upgrade runs at a time, and it locks our tables; if a lock takes longer than the session's lock_timeout, the server's
// error is returned. Upgrade may return ErrBeforeFirst. It does nothing if the schema has Version or a newer one.
func Upgrade(ctx context.Context, tx pgx.Tx) error {
	before, err := objects(ctx, tx)
	if err != nil {
		return err
	}
	version, err := begin(ctx, tx)
	if err != nil || version >= Version {
		return err
	}
	if version != 0 && version < FirstVersion {
		return ErrBeforeFirst
	}
	for _, name := range Tables(version) {
		if err := run(ctx, tx, path.Join("tables", name)); err != nil {
			return err
		}
	}
	for _, name := range wholes {
		if err := run(ctx, tx, name+".sql"); err != nil {
			return err
		}
	}
	return finish(ctx, tx, before)
}

// objects returns the oids of the schema and of its objects.
func objects(ctx context.Context, tx pgx.Tx) ([]uint32, error) {
	rows, _ := tx.Query(ctx, `SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('embedsidecar')
		UNION ALL SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('embedsidecar')
		UNION ALL SELECT to_regnamespace('embedsidecar')::oid WHERE to_regnamespace('embedsidecar') IS NOT NULL`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	return list, wrap.Errorf(err, "list the objects of the schema")
}

// begin creates the schema and the table of the version if they are missing, switches to the schema's owner, and locks
// out all other sessions. It returns the present version, or 0.
func begin(ctx context.Context, tx pgx.Tx) (version int, err error) {
	for _, sql := range []string{
		`DO $$ BEGIN
			IF to_regnamespace('embedsidecar') IS NULL THEN
				CREATE SCHEMA embedsidecar;
			END IF;
			EXECUTE format('SET LOCAL ROLE %I',
				(SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'embedsidecar'));
		END $$`,
		"CREATE TABLE IF NOT EXISTS embedsidecar.schema_version (version integer NOT NULL)",
		"LOCK TABLE embedsidecar.schema_version IN EXCLUSIVE MODE", // it can still be read
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return 0, fmt.Errorf("upgrade the schema: %w", err)
		}
	}
	err = tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM embedsidecar.schema_version").Scan(&version)
	if err == nil && version < Version {
		err = identify(ctx, tx, "schema_version")
	}
	if err != nil || version < FirstVersion || version >= Version {
		return version, err
	}
	// Lock all tables before the first is altered: otherwise a session that writes several of them could deadlock.
	_, err = tx.Exec(ctx, `DO $$ BEGIN
		EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(c.oid::regclass::text, ', '))
			FROM pg_class AS c WHERE c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind IN ('r', 'p')
				AND c.relname NOT IN ('schema_version', 'init_lock', 'index_lock'));
	END $$`)
	return version, wrap.Errorf(err, "lock the tables of the schema")
}

// identify gives logged tables without a primary key REPLICA IDENTITY FULL, so that their rows can be updated and
// deleted even if a publication is FOR ALL TABLES. It covers the named tables, or all except the lock tables.
func identify(ctx context.Context, tx pgx.Tx, names ...string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT c.oid::regclass FROM pg_class AS c WHERE c.relnamespace = 'embedsidecar'::regnamespace
			AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.relreplident = 'd'
			AND c.relname NOT IN ('init_lock', 'index_lock') AND ('{%[1]s}' = '{}' OR c.relname = ANY ('{%[1]s}'))
			AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
		LOOP
			EXECUTE format('ALTER TABLE %%s REPLICA IDENTITY FULL', name);
		END LOOP;
	END $$`, strings.Join(names, ",")))
	return wrap.Errorf(err, "give tables a replica identity")
}

// finish revokes what default privileges granted on new objects, grants rights to the roles that had them, and writes
// the version.
func finish(ctx context.Context, tx pgx.Tx, before []uint32) error {
	if _, err := tx.Exec(ctx, "REVOKE ALL ON ALL ROUTINES IN SCHEMA embedsidecar FROM PUBLIC"); err != nil {
		return fmt.Errorf("take functions from PUBLIC: %w", err)
	}
	// A table or view of another role with a column of our types would keep them from being altered.
	if _, err := tx.Exec(ctx, `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT t.oid::regtype FROM pg_type AS t
			WHERE t.typnamespace = 'embedsidecar'::regnamespace AND t.typelem = 0
		LOOP
			EXECUTE format('REVOKE ALL ON TYPE %s FROM PUBLIC', name);
		END LOOP;
	END $$`); err != nil {
		return fmt.Errorf("take types from PUBLIC: %w", err)
	}
	rows, _ := tx.Query(ctx, Query("inherited_rights"), pgx.StrictNamedArgs{"before": before})
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list rights by default: %w", err)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("take away rights by default: %w", err)
		}
	}
	rows, _ = tx.Query(ctx, Query("roles_with_rights"))
	holders, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Role, Holder string }])
	if err != nil {
		return fmt.Errorf("list roles with rights: %w", err)
	}
	for _, h := range holders {
		for _, grant := range grants(h.Role, h.Holder) {
			if _, err := tx.Exec(ctx, grant); err != nil {
				return fmt.Errorf("give %s its rights: %w", h.Holder, err)
			}
		}
	}
	if err := identify(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.schema_version"); err != nil {
		return fmt.Errorf("write the version: %w", err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO embedsidecar.schema_version (version) VALUES ($1)", Version)
	return wrap.Errorf(err, "write the version")
}

// grantOf matches a statement of roles.sql on objects of the schema, with the roles that it is for.
var grantOf = regexp.MustCompile(`(?m)^((?:GRANT|REVOKE) [^;]* ON [^;]* (?:TO|FROM)) ([a-z_, ]+);`)

// grants returns the statements of roles.sql for one of its roles, with holder in its place. holder is quoted.
func grants(role, holder string) []string {
	var list []string
	for _, m := range grantOf.FindAllStringSubmatch(read("roles.sql"), -1) {
		if slices.Contains(strings.Split(m[2], ", "), role) {
			list = append(list, m[1]+" "+holder)
		}
	}
	return list
}

// run executes the statements of a file.
func run(ctx context.Context, tx pgx.Tx, file string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, read(file)).ReadAll()
	return wrap.Errorf(err, "%s", file)
}

// Digest is a hash of the tables, comments, functions and views.
func Digest() uint32 {
	h := fnv.New32a()
	for _, name := range Tables(0) {
		_, _ = h.Write([]byte(read(path.Join("tables", name))))
	}
	for _, name := range wholes {
		_, _ = h.Write([]byte(read(name + ".sql")))
	}
	return h.Sum32()
}

// versionOf returns the number in the name of a tables file.
func versionOf(name string) int {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		panic(fmt.Sprintf("%s has no version in its name", name)) // compiled in
	}
	return version
}

// read returns an embedded file.
func read(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(b)
}
