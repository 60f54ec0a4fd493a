package report

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Configuration is a part of the configuration of a sidecar that is not in force: a file that was refused, or a setting
// that takes effect at the next start.
type Configuration struct {
	Instance string   `json:"instance"`
	Subject  string   `json:"subject"` // file, setting
	Name     string   `json:"name"`
	State    string   `json:"state"` // refused, needs_restart
	Detail   string   `json:"detail"`
	Hints    []string `json:"hints"`
}

// Configurations tells what of the configurations of sidecars that run is not in force.
func Configurations(ctx context.Context, db database.DB) ([]Configuration, error) {
	return collect(ctx, db, "read what is configured", pgx.RowToStructByPos[Configuration], "status_configuration",
		pgx.StrictNamedArgs{})
}

// Line says so in one sentence.
func (c *Configuration) Line() string {
	if c.State == "refused" {
		return wording.OneLine("configuration refused by " + c.Instance + ", the one before stays in force: " + c.Detail)
	}
	return "configuration of " + c.Instance + ": " + c.Name + " takes effect at the next start"
}
