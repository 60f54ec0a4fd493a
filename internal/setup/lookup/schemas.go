package lookup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// InSchemas returns the configuration with the pipelines that it has in the schemas that there are now. It asks the
// database only where there is a pipeline that is worked in schemas.
func InSchemas(ctx context.Context, db database.Reader, c *config.Config) (*config.Config, config.Spread, error) {
	tables := c.InSchemas()
	if len(tables) == 0 {
		return c, config.Spread{}, nil
	}
	found, err := database.Collect(ctx, db, "list_schemas", pgx.RowToStructByName[config.Schema],
		pgx.StrictNamedArgs{"tables": tables})
	if err != nil {
		return c, config.Spread{}, fmt.Errorf("look for schemas: %w", err)
	}
	in, left := c.In(found)
	return in, left, nil
}
