package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/catalog"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// foreignPublication returns *ConfigError when the publication belongs to somebody who is not trusted and owns none of
// its tables: he could take changes out of it.
func (in *initializer) foreignPublication(ctx context.Context, tx pgx.Tx) error {
	sources := []uint32{}
	for _, f := range in.found {
		sources = append(sources, f.Table.OID)
	}
	name, owner, trusted := in.o.Publication, "", false
	err := tx.QueryRow(ctx, `SELECT o.rolname::text, o.rolsuper OR o.rolname = current_user OR o.rolname = ANY ($2::text[])
			OR pg_has_role(o.oid, session_user, 'MEMBER') OR EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY ($3::oid[])
			AND c.relowner = o.oid)
		FROM pg_publication b JOIN pg_roles o ON o.oid = b.pubowner WHERE b.pubname = $1`, name, database.Trusted(tx.Conn()),
		sources).Scan(&owner, &trusted)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && trusted {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up owner of publication %q: %w", name, err)
	}
	return &refusal.ConfigError{
		Problem: fmt.Sprintf("the publication %q belongs to %q, who owns none of its tables and could take changes out of it",
			name, owner),
		Hint: append([]string{"name another publication: one that is not there yet is made"},
			catalog.TrustHint(tx.Conn().Config().User, owner)...),
	}
}
