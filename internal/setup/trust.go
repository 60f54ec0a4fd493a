package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// foreignPublication returns *ConfigError when the publication belongs to somebody who is not trusted and owns none of
// its tables: he could take changes out of it.
func (in *initializer) foreignPublication(ctx context.Context, tx pgx.Tx) error {
	sources := []uint32{}
	for _, f := range in.found {
		sources = append(sources, f.Table.OID)
	}
	name, owner, trusted := in.o.Publication, "", false
	err := tx.QueryRow(ctx, sqlfiles.Query("publication_owner"), pgx.StrictNamedArgs{
		"name": name, "trusted": database.Trusted(tx.Conn()), "tables": sources,
	}).Scan(&owner, &trusted)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && trusted {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up owner of publication %q: %w", name, err)
	}
	return &refusal.ConfigError{
		Code: code.Untrusted,
		Problem: fmt.Sprintf("the publication %q belongs to %q, who owns none of its tables and could take changes out of it",
			name, owner),
		Hint: append([]string{"name another publication: a missing one is created"},
			catalog.TrustHint(tx.Conn().Config().User, owner)...),
	}
}
