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

// FirstVersion is the oldest version of the schema embedsidecar that Upgrade can take further, of the first release.
const FirstVersion = 36

// Version is the one that it leads to: that of the last file of tables.
var Version = func() int {
	names := Tables(0)
	return versionOf(names[len(names)-1])
}()

// ErrBeforeFirst says that a program of before the first release made the schema: there is no way on from there.
var ErrBeforeFirst = errors.New("the schema embedsidecar is of a program before the first release")

// wholes are the functions and views, in the order in which they can be made: each upgrade makes all of them.
var wholes = []string{
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

// Upgrade makes our schema, or brings an older one to Version, all of it in this transaction: tables by the numbered
// files, functions and views as a whole, and rights for the roles that have them already. What it makes belongs to the
// schema's owner. One upgrade runs at a time, and nobody works on our tables meanwhile; a lock that is not to be had
// within the session's lock_timeout is the server's error. It returns ErrBeforeFirst, and does nothing where Version
// is there already, or a newer one.
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

// objects returns the oids of what is in the schema, and its own.
func objects(ctx context.Context, tx pgx.Tx) ([]uint32, error) {
	rows, _ := tx.Query(ctx, `SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('embedsidecar')
		UNION ALL SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('embedsidecar')
		UNION ALL SELECT to_regnamespace('embedsidecar')::oid WHERE to_regnamespace('embedsidecar') IS NOT NULL`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	return list, wrap.Errorf(err, "list the objects of the schema")
}

// begin makes schema and table of the version where they are missing, becomes the schema's owner, and has everybody
// else wait. It returns the version that is there; 0: none.
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
		"LOCK TABLE embedsidecar.schema_version IN EXCLUSIVE MODE", // it can still be read,
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
	// Anyone who writes a table that is altered would wait for us and we for him: all of them, before the first is
	// altered.
	_, err = tx.Exec(ctx, `DO $$ BEGIN
		EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(c.oid::regclass::text, ', '))
			FROM pg_class AS c WHERE c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind IN ('r', 'p')
				AND c.relname NOT IN ('schema_version', 'init_lock', 'index_lock'));
	END $$`)
	return version, wrap.Errorf(err, "lock the tables of the schema")
}

// identify lets rows of logged tables be updated and deleted that have no primary key, where somebody publishes all
// tables, as programs that replicate a database do. Of those that are named, or of all but those that are locked alone.
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

// finish takes away what default privileges gave on new objects, gives rights to the roles that had them, and writes
// the version.
func finish(ctx context.Context, tx pgx.Tx, before []uint32) error {
	if _, err := tx.Exec(ctx, "REVOKE ALL ON ALL ROUTINES IN SCHEMA embedsidecar FROM PUBLIC"); err != nil {
		return fmt.Errorf("take functions from PUBLIC: %w", err)
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

// A statement of roles.sql on objects of the schema, with the roles it is for.
var grantOf = regexp.MustCompile(`(?m)^((?:GRANT|REVOKE) [^;]* ON [^;]* (?:TO|FROM)) ([a-z_, ]+);`)

// grants returns what roles.sql has for one of its roles, for this role in its place. The name is quoted already.
func grants(role, holder string) []string {
	var list []string
	for _, m := range grantOf.FindAllStringSubmatch(read("roles.sql"), -1) {
		if slices.Contains(strings.Split(m[2], ", "), role) {
			list = append(list, m[1]+" "+holder)
		}
	}
	return list
}

// run sends the statements of a file.
func run(ctx context.Context, tx pgx.Tx, file string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, read(file)).ReadAll()
	return wrap.Errorf(err, "%s", file)
}

// Digest tells one set of tables, functions and views from another.
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

// versionOf returns the number in the name of a file of tables.
func versionOf(name string) int {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		panic(fmt.Sprintf("%s has no version in its name", name)) // compiled in
	}
	return version
}

// read returns a file that is compiled in.
func read(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(b)
}
