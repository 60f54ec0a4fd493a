package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// FindKey fills in the columns that name a row, in the replication stream as in queries: those of the replica identity.
//
// Operators are those of the default btree operator class of what the index compares, so that sorting and comparing
// agree.
//
// It returns *ConfigError when rows cannot be named.
func (t *Table) FindKey(ctx context.Context, q database.Querier) error {
	// A domain's values are compared as those of its base type: a constraint that was added later need not hold for what
	// is there.
	rows, err := q.Query(ctx, sqlfiles.Query("table_key"), pgx.StrictNamedArgs{
		"table":    t.OID,
		"identity": t.Identity,
	})
	if err != nil {
		return fmt.Errorf("look up key of %s: %w", t.Quoted(), err)
	}
	if t.Key, err = pgx.CollectRows(rows, pgx.RowToStructByName[pipeline.KeyColumn]); err != nil {
		return fmt.Errorf("look up key of %s: %w", t.Quoted(), err)
	}
	for _, k := range t.Key {
		if k.Equal == "" || k.Greater == "" {
			return refusal.Coded(code.Key, fmt.Sprintf("key column %q of %s is of type %s, which has no order of its own", k.Name,
				t.Quoted(), k.Type))
		}
		if c, _ := t.Column(k.Name); c.Generated {
			return refusal.Coded(code.Key, fmt.Sprintf("key column %q of %s is generated, so the WAL does not name it", k.Name,
				t.Quoted()), "ALTER TABLE "+t.Quoted()+
				" REPLICA IDENTITY USING INDEX ...; with a unique index over NOT NULL columns that are not generated")
		}
	}
	alter := "ALTER TABLE " + t.Quoted()
	switch {
	case t.Identity == "n":
		return refusal.Coded(code.Key, t.Quoted()+
			" has REPLICA IDENTITY NOTHING: once published, its UPDATEs and DELETEs would fail",
			alter+" REPLICA IDENTITY DEFAULT; (needs a primary key)")
	case len(t.Key) > 0:
		return nil
	case t.Identity == "i":
		return refusal.Coded(code.Key, t.Quoted()+" has a replica identity whose index is gone",
			alter+" REPLICA IDENTITY DEFAULT; (needs a primary key)")
	case t.Identity == "f":
		return refusal.Coded(code.Key, t.Quoted()+" has no primary key and no replica identity", alter+" ADD PRIMARY KEY (...);")
	default:
		return refusal.Coded(code.Key, t.Quoted()+
			" has no primary key that can name its rows in the WAL (a deferrable one cannot)",
			alter+" ADD PRIMARY KEY (...);", "or, with a unique index over NOT NULL columns: "+alter+
				" REPLICA IDENTITY USING INDEX ...;")
	}
}

// FindRoutes finds out which columns of the key say in which partition a row is.
func (t *Table) FindRoutes(ctx context.Context, q database.Reader) error {
	names, err := database.Collect(ctx, q, "partition_key", pgx.RowTo[string], pgx.StrictNamedArgs{"table": t.OID})
	if err != nil {
		return fmt.Errorf("look up how %s is partitioned: %w", t.Quoted(), err)
	}
	for i := range t.Key {
		// A list of arrays cannot be told from one array.
		t.Key[i].Routes = slices.Contains(names, t.Key[i].Name) && !strings.HasSuffix(t.Key[i].Type, "[]")
	}
	return nil
}

// KeyNames returns the names of the key columns, in the order of the key.
func KeyNames(key []pipeline.KeyColumn) []string {
	return lists.Map(key, func(k pipeline.KeyColumn) string { return k.Name })
}

// Leaves returns the numbers of the tables whose changes are changes of the table: its leaf partitions, or itself.
func Leaves(ctx context.Context, q database.Reader, oid uint32) ([]uint32, error) {
	leaves, err := database.Collect(ctx, q, "partition_leaves", pgx.RowTo[uint32], pgx.StrictNamedArgs{"table": oid})
	return leaves, wrap.Errorf(err, "list partitions")
}

// CheckLeaves returns *ConfigError when the change of a partition would not name its row by the key of the root.
func (t *Table) CheckLeaves(ctx context.Context, q database.Querier) error {
	rows, err := q.Query(ctx, sqlfiles.Query("table_leaves"), pgx.StrictNamedArgs{"table": t.OID})
	if err != nil {
		return fmt.Errorf("look up partitions of %s: %w", t.Quoted(), err)
	}
	type leaf struct {
		Schema, Name, Kind, Persistence, Identity string
		Key                                       []string
	}
	leaves, err := pgx.CollectRows(rows, pgx.RowToStructByName[leaf])
	if err != nil {
		return fmt.Errorf("look up partitions of %s: %w", t.Quoted(), err)
	}
	for _, l := range leaves {
		name := database.Quote(l.Schema, l.Name)
		switch {
		case l.Kind == "p": // a partitioned table without partitions
		case l.Kind != "r":
			return refusal.Coded(code.Key, fmt.Sprintf("partition %s is %s: it sends no changes", name, kinds[l.Kind]))
		case l.Persistence != "p":
			return refusal.Coded(code.Key, fmt.Sprintf("partition %s is unlogged: its changes are not in the WAL", name),
				"ALTER TABLE "+name+" SET LOGGED;")
		case l.Identity == "f":
		default:
			for _, k := range t.Key {
				if !slices.Contains(l.Key, k.Name) {
					return refusal.Coded(code.Key, fmt.Sprintf("partition %s does not name its rows by column %q of the key in the WAL",
						name, k.Name), "ALTER TABLE "+name+
						" REPLICA IDENTITY DEFAULT; (or USING INDEX over the key of "+t.Quoted()+")")
				}
			}
		}
	}
	return nil
}
