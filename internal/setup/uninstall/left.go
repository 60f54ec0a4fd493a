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
	Owned                 bool // the session may remove it
	Only                  bool `db:"-"` // without the columns that inherit from it
}

func (l left) name() string {
	if l.Column == "" {
		return database.Quote(l.Schema, l.Table)
	}
	return database.Quote(l.Schema, l.Table, l.Column)
}

// removal plans its removal.
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

// removals plans its removal, after that of the views on it that embedsidecar.view_sql made.
func (l left) removals(ctx context.Context, q database.Querier) ([]removal, error) {
	views, err := database.Collect(ctx, q, "marked_views", pgx.RowTo[string],
		pgx.StrictNamedArgs{"table": l.OID, "mark": catalog.ViewOf})
	if err != nil {
		return nil, fmt.Errorf("look for views of %s: %w", l.name(), err)
	}
	var plan []removal
	if l.Column == "" { // views of a table whose column is dropped are not ours
		for _, name := range views {
			plan = append(plan, removal{sql: "DROP VIEW " + name})
		}
	}
	return append(plan, l.removal()), nil
}

// heirs counts the given columns that inherit from this one.
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

// spare excludes inheriting columns from the removal of a column if a pipeline writes to one of them.
func (l *left) spare(ctx context.Context, q database.Querier, stored []resolve.Stored) error {
	n, err := l.heirs(ctx, q, columns(stored))
	l.Only = n > 0
	return err
}

// columns returns the destination columns of pipelines, whoever made them.
func columns(stored []resolve.Stored) []left {
	var list []left
	for _, s := range stored {
		if s.IntoColumn != "" {
			list = append(list, left{Column: s.IntoColumn, OID: s.OID})
		}
	}
	return list
}

// markedDestinations returns the destinations with init's mark, whether or not a pipeline still writes to them.
func markedDestinations(ctx context.Context, q database.Querier) ([]left, error) {
	found, err := database.Collect(ctx, q, "marked_destinations", pgx.RowToStructByName[left],
		pgx.StrictNamedArgs{"mark": catalog.VectorsOf})
	return found, wrap.Errorf(err, "look for destinations that init made")
}

// made returns the marked destinations that init made, including those without a pipeline, but not those of other
// roles, who could mark anything and so stop the removal. The mark of a column counts only if it names the column's own
// table: CREATE TABLE ... (LIKE ... INCLUDING COMMENTS) copies it to other tables.
func made(marked []left) []left {
	return slices.DeleteFunc(slices.Clone(marked), func(l left) bool {
		t := catalog.Table{Schema: l.Schema, Name: l.Table}
		return !l.Owned || l.Column != "" && !strings.HasPrefix(l.Mark, catalog.MarkOf(&t, ""))
	})
}

// ownDestination returns the marked destination of a pipeline, or nil.
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
