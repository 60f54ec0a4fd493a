package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/code"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Whose objects may be used. What hangs on a table (a trigger, a default, a rule, the expression of an index) runs
// with the rights of whoever uses the table, so that its owner can do all that our role can. Connections look at the
// schema embedsidecar when they are made (package database); here it is looked at again, as it may have been made
// since, with the tables that vectors go to.

// Untrusted returns *ConfigError when the schema embedsidecar, or one of some tables, is not to be touched.
func Untrusted(ctx context.Context, tx pgx.Tx, tables ...uint32) error {
	found, err := database.Strangers(ctx, tx.Conn(), tables...)
	if err != nil || len(found) == 0 {
		return err
	}
	text, owners := database.InWords(found)
	role := tx.Conn().Config().User
	e := &refusal.ConfigError{
		Problem: fmt.Sprintf("it is not safe for role %q to use: %s", role, text), Code: code.Untrusted,
	}
	if len(owners) == 0 {
		e.Hint = []string{"whoever owns it takes it away, or name another table: one that is not there yet is made"}
		return e
	}
	e.Hint = TrustHint(role, owners[0])
	return e
}

// TrustHint tells what to do about a table or a publication of an owner that a role does not trust; of our own objects
// database.TrustHint does.
func TrustHint(role, owner string) []string {
	return []string{
		fmt.Sprintf("run as the role that embedsidecar roles makes, or as %s", owner),
		database.TrustOwners(role, owner),
	}
}

// Unruly returns why a superuser should not work on a table of somebody else, or nil: its triggers, the expressions of
// its indexes and a view that its owner puts in its place would run with the rights of a superuser. A role with fewer
// rights lends only those.
func (t *Table) Unruly(ctx context.Context, tx pgx.Tx) error {
	var super, trusted bool
	var role string
	err := tx.QueryRow(ctx, sqlfiles.Query("table_owner"), pgx.StrictNamedArgs{
		"owner": t.Owner, "trusted": database.Trusted(tx.Conn()),
	}).Scan(&role, &super, &trusted)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (!super || trusted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up owner of %s: %w", t.Quoted(), err)
	}
	return &refusal.ConfigError{
		Problem: fmt.Sprintf("%q is a superuser and %s belongs to %q, whose triggers and functions would run with all rights",
			role, t.Quoted(), t.Owner),
		Hint: TrustHint(role, t.Owner), Code: code.Untrusted,
	}
}
