package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// FindKey fills in the columns that name a row, in the replication stream as in queries: those of the replica identity.
//
// Operators are those of the default btree operator class of what the index compares, so that sorting and comparing
// agree.
func (t *Table) FindKey(ctx context.Context, q database.Querier) (problem string, hint []string, err error) {
	// A domain's values are compared as those of its base type: a constraint that was added later need not hold for what
	// is there.
	rows, err := q.Query(ctx, `SELECT a.attname::text AS name,
		(WITH RECURSIVE base AS (SELECT a.atttypid AS oid UNION ALL SELECT d.typbasetype FROM base
		JOIN pg_type d ON d.oid = base.oid WHERE d.typtype = 'd')
			SELECT format_type(base.oid, -1) FROM base JOIN pg_type b ON b.oid = base.oid WHERE b.typtype <> 'd') AS type,
		CASE WHEN co.oid IS NULL THEN '' ELSE format('"%s"."%s"', replace(cn.nspname, '"', '""'), replace(co.collname, '"',
		'""')) END AS collation,
		coalesce('OPERATOR("' || replace(en.nspname, '"', '""') || '".' || e.oprname || ')', '') AS equal,
		coalesce('OPERATOR("' || replace(gn.nspname, '"', '""') || '".' || g.oprname || ')', '') AS greater
		FROM (SELECT i.* FROM pg_index i WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid
			AND CASE WHEN $2 = 'i' THEN i.indisreplident ELSE i.indisprimary END
			AND (i.indimmediate OR $2 = 'f')) AS i
		CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
		JOIN pg_opclass used ON used.oid = i.indclass[n]
		LEFT JOIN pg_opclass o ON o.opcintype = used.opcintype AND o.opcdefault AND o.opcmethod = (SELECT m.oid FROM pg_am m
		WHERE m.amname = 'btree')
		LEFT JOIN pg_amop ea ON ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype
		AND ea.amoprighttype = o.opcintype AND ea.amopstrategy = 3
		LEFT JOIN pg_operator e ON e.oid = ea.amopopr LEFT JOIN pg_namespace en ON en.oid = e.oprnamespace
		LEFT JOIN pg_amop ga ON ga.amopfamily = o.opcfamily AND ga.amoplefttype = o.opcintype
		AND ga.amoprighttype = o.opcintype AND ga.amopstrategy = 5
		LEFT JOIN pg_operator g ON g.oid = ga.amopopr LEFT JOIN pg_namespace gn ON gn.oid = g.oprnamespace
		LEFT JOIN pg_collation co ON co.oid = i.indcollation[n] LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
		ORDER BY n`, t.OID, t.Identity)
	if err != nil {
		return "", nil, fmt.Errorf("look up key of %s: %w", t.Quoted(), err)
	}
	if t.Key, err = pgx.CollectRows(rows, pgx.RowToStructByName[pipeline.KeyColumn]); err != nil {
		return "", nil, fmt.Errorf("look up key of %s: %w", t.Quoted(), err)
	}
	for _, k := range t.Key {
		if k.Equal == "" || k.Greater == "" {
			return fmt.Sprintf("key column %q of %s is of type %s, which has no order of its own", k.Name, t.Quoted(), k.Type),
				nil, nil
		}
		if c, _ := t.Column(k.Name); c.Generated {
			return fmt.Sprintf("key column %q of %s is generated, so the WAL does not name it", k.Name, t.Quoted()),
				[]string{"ALTER TABLE " + t.Quoted() +
					" REPLICA IDENTITY USING INDEX ...; with a unique index over NOT NULL columns that are not generated"}, nil
		}
	}
	alter := "ALTER TABLE " + t.Quoted()
	switch {
	case t.Identity == "n":
		return t.Quoted() + " has REPLICA IDENTITY NOTHING: once published, its UPDATEs and DELETEs would fail",
			[]string{alter + " REPLICA IDENTITY DEFAULT; (needs a primary key)"}, nil
	case len(t.Key) > 0:
		return "", nil, nil
	case t.Identity == "i":
		return t.Quoted() + " has a replica identity whose index is gone",
			[]string{alter + " REPLICA IDENTITY DEFAULT; (needs a primary key)"}, nil
	case t.Identity == "f":
		return t.Quoted() + " has no primary key, so its rows have no name", []string{alter + " ADD PRIMARY KEY (...);"}, nil
	default:
		return t.Quoted() + " has no primary key that can name its rows in the WAL (a deferrable one cannot)",
			[]string{alter + " ADD PRIMARY KEY (...);", "or, with a unique index over NOT NULL columns: " + alter +
				" REPLICA IDENTITY USING INDEX ...;"}, nil
	}
}

// KeyNames returns the names of the key columns, in the order of the key.
func KeyNames(key []pipeline.KeyColumn) []string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = k.Name
	}
	return names
}

// Leaves returns the numbers of the tables whose changes are changes of the table: its leaf partitions, or itself.
func Leaves(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, oid uint32,
) ([]uint32, error) {
	rows, err := q.Query(ctx, `SELECT p.relid::oid FROM pg_partition_tree($1::oid::regclass) AS p WHERE p.isleaf
		UNION ALL SELECT c.oid FROM pg_class c WHERE c.oid = $1 AND c.relkind = 'r' AND NOT c.relispartition`, oid)
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	leaves, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	return leaves, nil
}

// CheckLeaves makes sure that a change of any partition names its row by the key of the root.
func (t *Table) CheckLeaves(ctx context.Context, q database.Querier) (problem string, hint []string, err error) {
	rows, err := q.Query(ctx, `SELECT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
		c.relpersistence::text AS persistence,
		c.relreplident::text AS identity,
		coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		AND a.attnum = ANY (i.indkey::int2[])
			WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
			AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE c.relreplident = 'd' AND i.indisprimary END),
			'{}') AS key
		FROM pg_partition_tree($1::oid::regclass) AS p JOIN pg_class c ON c.oid = p.relid
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.isleaf ORDER BY 1, 2`, t.OID)
	if err != nil {
		return "", nil, fmt.Errorf("look up partitions of %s: %w", t.Quoted(), err)
	}
	type leaf struct {
		Schema, Name, Kind, Persistence, Identity string
		Key                                       []string
	}
	leaves, err := pgx.CollectRows(rows, pgx.RowToStructByName[leaf])
	if err != nil {
		return "", nil, fmt.Errorf("look up partitions of %s: %w", t.Quoted(), err)
	}
	for _, l := range leaves {
		name := database.Quote(l.Schema, l.Name)
		switch {
		case l.Kind == "p": // a partitioned table without partitions
		case l.Kind != "r":
			return fmt.Sprintf("partition %s is %s: it sends no changes", name, kinds[l.Kind]), nil, nil
		case l.Persistence != "p":
			return fmt.Sprintf("partition %s is unlogged: its changes are not in the WAL", name),
				[]string{"ALTER TABLE " + name + " SET LOGGED;"}, nil
		case l.Identity == "f":
		default:
			for _, k := range t.Key {
				if !slices.Contains(l.Key, k.Name) {
					return fmt.Sprintf("partition %s does not name its rows by column %q of the key in the WAL", name, k.Name),
						[]string{"ALTER TABLE " + name + " REPLICA IDENTITY DEFAULT; (or USING INDEX over the key of " + t.Quoted() +
							")"}, nil
				}
			}
		}
	}
	return "", nil, nil
}
