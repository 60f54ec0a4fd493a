package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Harmless returns *ConfigError for an expression that somebody who may not act as this session's role may not have run
// with its rights: it may compute, with what the server has for that, and neither read nor do anything else. Nothing of
// it is run.
func Harmless(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) error {
	refuse := func(why string) error {
		return refusal.Coded(code.Untrusted, word+" "+why,
			"who asks may not act as the role that evaluates it: such expressions call functions of PostgreSQL that compute",
			"or declare the pipeline as a role that may, or in the file")
	}
	return database.RolledBack(ctx, tx, func(tx pgx.Tx) error {
		if err := ParseExpression(ctx, tx, t, word, expression); err != nil {
			return err
		}
		const name = "embedsidecar_probe"
		err := database.Extended(ctx, tx, "CREATE TEMPORARY VIEW "+name+" AS SELECT "+enclose(expression)+" AS e"+
			over(word, t))
		if database.Denied(err) {
			return errors.Join(refuse("cannot be looked at: the role has no privilege TEMPORARY on the database"), err)
		}
		if err != nil {
			return fmt.Errorf("make temporary view: %w", err)
		}
		var rule uint32
		var tree string
		err = tx.QueryRow(ctx, "SELECT oid, ev_action::text FROM pg_rewrite WHERE ev_class = ('pg_temp."+name+
			"')::regclass").Scan(&rule, &tree)
		if err != nil {
			return fmt.Errorf("read temporary view: %w", err)
		}
		if problem := forbidden(tree, word); problem != "" {
			return refusal.Coded(code.Expression, word+" "+problem)
		}
		var what *string
		err = tx.QueryRow(ctx, sqlfiles.Query("harmful_in_rule"), pgx.StrictNamedArgs{
			"rule": rule, "table": t.OID, "functions": functionsIn(tree),
		}).Scan(&what)
		if err != nil {
			return fmt.Errorf("look up what %s calls: %w", word, err)
		}
		if what != nil {
			return refuse("uses " + *what)
		}
		return nil
	})
}
