package catalog

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// SchemaVersion returns the version of our schema; 0: it does not exist.
func SchemaVersion(ctx context.Context, q database.Querier) (int, error) {
	var there bool
	var role string
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'embedsidecar' AND c.relname = 'schema_version'), current_user::text`).Scan(&there, &role)
	if err != nil {
		return 0, fmt.Errorf("look up version of the schema: %w", err)
	}
	if !there {
		return 0, nil
	}
	var version int
	err = q.QueryRow(ctx, "SELECT version FROM embedsidecar.schema_version").Scan(&version)
	if database.Denied(err) {
		return 0, &refusal.PermissionError{What: "look at the schema embedsidecar", Role: role, Err: err, SQL: []string{
			"GRANT embedsidecar_reader TO " + database.Quote(role) + ";",
			"-- that reads how everything stands; embedsidecar_searcher searches, embedsidecar_operator repairs, " +
				"embedsidecar_run works",
			"-- if there is no such group: `embedsidecar roles` prints what makes it",
		}}
	}
	return version, wrap.Errorf(err, "look up version of the schema")
}

// CheckVersion is Current in a transaction of its own.
func CheckVersion(ctx context.Context, db database.Beginner) error {
	return database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error { return Current(ctx, tx) })
}

// Current returns *NotSetUpError when our schema is missing or older than this program needs, and *ConfigError when it
// is not trusted. A newer one is fine, because upgrades only add.
func Current(ctx context.Context, tx pgx.Tx) error {
	if err := Untrusted(ctx, tx); err != nil {
		return err
	}
	return NewEnough(ctx, tx)
}

// NewEnough is Current without the trust check, for callers that have just made it.
func NewEnough(ctx context.Context, tx pgx.Tx) error {
	version, err := SchemaVersion(ctx, tx)
	switch {
	case err != nil:
		return err
	case version == 0:
		return &refusal.NotSetUpError{}
	case version < sqlfiles.FirstVersion:
		return BeforeFirst(version)
	case version < sqlfiles.Version:
		older := &refusal.NotSetUpError{Err: fmt.Errorf(
			"the schema embedsidecar has version %d, and this program needs version %d",
			version, sqlfiles.Version)}
		const owner = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'embedsidecar'"
		err = tx.QueryRow(ctx, owner).Scan(&older.Of)
		return cmp.Or(wrap.Errorf(err, "look up the owner of the schema"), error(older))
	}
	return nil
}

// BeforeFirst is the error of a schema that is too old to upgrade.
func BeforeFirst(version int) error {
	return refusal.Coded(code.NotSetUp, fmt.Sprintf(
		"the schema embedsidecar has version %d, of a program before the first release: "+
			"it is not upgraded", version),
		"remove it with that program's `embedsidecar uninstall --yes`, which keeps the vectors, then run `embedsidecar init "+
			"--adopt`: it keeps those in embedding tables",
		"a column with vectors takes `--overwrite`, too, which embeds its rows again")
}

// Untrusted returns *ConfigError when the schema embedsidecar, or one of some tables, is not trusted.
func Untrusted(ctx context.Context, tx pgx.Tx, tables ...uint32) error {
	found, err := database.Strangers(ctx, tx.Conn(), tables...)
	return strange(tx, found, err)
}

func strange(tx pgx.Tx, found []database.Stranger, err error) error {
	if err != nil || len(found) == 0 {
		return err
	}
	text, owners := database.InWords(found)
	if len(owners) == 0 {
		return notSafe(tx, "", "use: "+text, "ask its owner to remove it, or name another table: a missing one is created")
	}
	return notSafe(tx, owners[0], "use: "+text, RunAs(owners[0]))
}

// RunAs is the hint to run as the owner of a table or publication. The connection handles our own objects.
func RunAs(owner string) string {
	return "run as the role that embedsidecar roles makes, or as " + owner
}

// notSafe is the error of an action in which an untrusted role, owner, could run code with the session's rights; "":
// no role is to be trusted.
func notSafe(tx pgx.Tx, owner, action string, hints ...string) error {
	role := tx.Conn().Config().User
	e := &refusal.ConfigError{
		Problem: fmt.Sprintf("it is not safe for role %q to %s", role, action), Hint: hints, Code: code.Untrusted,
	}
	if owner != "" {
		e.Hint, e.Trust = append(e.Hint, database.TrustOwners(role, owner)), []string{owner}
	}
	return e
}
