package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// left is a destination that init made.
type left struct {
	Schema, Table, Column string // Column is "" for an embedding table
	OID                   uint32
	Mark                  string
	Only                  bool `db:"-"` // not the columns that inherit from it
}

func (l left) name() string {
	if l.Column == "" {
		return database.Quote(l.Schema, l.Table)
	}
	return database.Quote(l.Schema, l.Table, l.Column)
}

// removal plans its end.
func (l left) removal() removal {
	if l.Column == "" {
		return removal{"DROP TABLE " + database.Quote(l.Schema, l.Table), []uint32{l.OID}}
	}
	alter := "ALTER TABLE "
	if l.Only {
		alter += "ONLY "
	}
	return removal{alter + database.Quote(l.Schema, l.Table) + " DROP COLUMN " + database.Quote(l.Column), []uint32{l.OID}}
}

// removals plans its end, and before it that of the views over it that were made as embedsidecar.view_sql says.
func (l left) removals(ctx context.Context, q database.Querier) ([]removal, error) {
	views, err := database.Collect(ctx, q, "marked_views", pgx.RowTo[string],
		pgx.StrictNamedArgs{"table": l.OID, "mark": catalog.ViewOf})
	if err != nil {
		return nil, fmt.Errorf("look for views of %s: %w", l.name(), err)
	}
	var plan []removal
	if l.Column == "" { // a view of a table whose column goes is none of ours
		for _, name := range views {
			plan = append(plan, removal{sql: "DROP VIEW " + name})
		}
	}
	return append(plan, l.removal()), nil
}

// heirs counts those of the columns that inherit from this one.
func (l left) heirs(ctx context.Context, q database.Querier, columns []left) (n int, err error) {
	if l.Column == "" {
		return 0, nil
	}
	var tables []uint32
	for _, o := range columns {
		if o.Column == l.Column && o.OID != l.OID {
			tables = append(tables, o.OID)
		}
	}
	err = q.QueryRow(ctx, sqlfiles.Query("heirs"), pgx.StrictNamedArgs{"table": l.OID, "among": tables}).Scan(&n)
	return n, wrap.Errorf(err, "look for columns that inherit from %s", l.name())
}

// spare keeps the end of a column from being that of the columns that inherit from it, where a pipeline writes to one
// of those.
func (l *left) spare(ctx context.Context, q database.Querier, stored []resolve.Stored) error {
	n, err := l.heirs(ctx, q, columns(stored))
	l.Only = n > 0
	return err
}

// columns are the destinations of pipelines that are columns, no matter who made them.
func columns(stored []resolve.Stored) []left {
	var list []left
	for _, s := range stored {
		if s.IntoColumn != "" {
			list = append(list, left{Column: s.IntoColumn, OID: s.OID})
		}
	}
	return list
}

// markedDestinations returns the destinations with the mark of init, whether or not a pipeline still writes to them.
func markedDestinations(ctx context.Context, q database.Querier) ([]left, error) {
	found, err := database.Collect(ctx, q, "marked_destinations", pgx.RowToStructByName[left],
		pgx.StrictNamedArgs{"mark": catalog.VectorsOf})
	return found, wrap.Errorf(err, "look for destinations that init made")
}

// made are those of marked destinations that init made, though no pipeline may write to them any more. The mark of a
// column counts if it names the column's own table: CREATE TABLE ... (LIKE ... INCLUDING COMMENTS) copies it to tables
// that are not ours.
func made(marked []left) []left {
	return slices.DeleteFunc(slices.Clone(marked), func(l left) bool {
		t := catalog.Table{Schema: l.Schema, Name: l.Table}
		return l.Column != "" && !strings.HasPrefix(l.Mark, catalog.MarkOf(&t, ""))
	})
}

// ownDestination returns what holds a pipeline's vectors if it is marked, or nil.
func ownDestination(marked []left, s *resolve.Stored) *left {
	at := slices.IndexFunc(marked, func(l left) bool {
		return l.Column == s.IntoColumn && (s.InSource() && l.OID == s.OID ||
			!s.InSource() && l.Schema == s.IntoSchema && l.Table == s.IntoTable)
	})
	if at < 0 {
		return nil
	}
	return &marked[at]
}
