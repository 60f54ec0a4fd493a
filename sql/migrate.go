package sqlfiles

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Migration is a step from one version of the schema to the next, and back.
type Migration struct{ Name, Up, Down string }

// Migrations returns all steps in their order, of files 0001_name.sql and so on, each with its way back below a line of its own.
func Migrations() []Migration {
	entries, err := files.ReadDir("migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	list := make([]Migration, 0, len(entries))
	for i, e := range entries {
		b, err := files.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err) // compiled in
		}
		up, down, ok := strings.Cut(string(b), "\n---- create above / drop below ----\n")
		if !ok || !strings.HasPrefix(e.Name(), fmt.Sprintf("%04d_", i+1)) {
			panic(fmt.Sprintf("%s is not the migration to version %d, there and back", e.Name(), i+1))
		}
		list = append(list, Migration{Name: e.Name(), Up: up, Down: down})
	}
	return list
}

// Migrate brings the schema, which is there, to a version, up or down: each step with the note of its version in a transaction. Of two
// that migrate a database at the same time the second waits, and goes on from where the first has come to.
func Migrate(ctx context.Context, conn *pgx.Conn, version int) (err error) {
	list := Migrations()
	if version < 0 || version > len(list) {
		return fmt.Errorf("migrate to version %d: there are 0 to %d", version, len(list))
	}
	const lock = int64(9628173550095224)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	defer func() {
		_, unlockErr := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", lock)
		if err == nil && unlockErr != nil {
			err = fmt.Errorf("let other migrations go on: %w", unlockErr)
		}
	}()
	if _, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS embedsidecar.schema_version (version int4 NOT NULL);
		INSERT INTO embedsidecar.schema_version (version) SELECT 0 WHERE NOT EXISTS (SELECT FROM embedsidecar.schema_version)`); err != nil {
		return fmt.Errorf("make the table of the version: %w", err)
	}
	var at int
	if err := conn.QueryRow(ctx, "SELECT version FROM embedsidecar.schema_version").Scan(&at); err != nil {
		return fmt.Errorf("look up the version: %w", err)
	}
	if at < 0 || at > len(list) {
		return fmt.Errorf("migrate from version %d: there are 0 to %d", at, len(list))
	}
	for at != version {
		step, next := list[min(at, len(list)-1)], at+1
		script := step.Up
		if version < at {
			step, next = list[at-1], at-1
			script = step.Down
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, script); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE embedsidecar.schema_version SET version = $1", next)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s, from version %d to %d: %w", step.Name, at, next, err)
		}
		at = next
	}
	return nil
}
