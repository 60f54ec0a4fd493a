package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// table is what the catalogue says of a source table.
type table struct {
	OID         uint32
	Schema      string
	Name        string
	Kind        string // pg_class.relkind
	Persistence string // pg_class.relpersistence
	Identity    string // pg_class.relreplident
	Children    bool   // other tables inherit from it
	Triggers    bool   // triggers of the user's fire on an UPDATE of it, or of a partition
	RowSecurity bool   // policies hide rows from the current role
	Reader      string // the role that looked
	OwnedByUs   bool   // the current role has the rights of the owner
	Owner       string
	Columns     []column             `db:"-"`
	Key         []pipeline.KeyColumn `db:"-"`
}

// column is what the catalogue says of a column.
type column struct {
	Number    int16
	Name      string
	Type      uint32
	Modifier  int32
	TypeName  string // with modifier, ready for a definition
	Category  string // pg_type.typcategory
	NotNull   bool
	Generated bool
	Default   bool
	Collation string // as a clause for a definition; "" when it is the type's own
}

func (t *table) quoted() string { return database.Quote(t.Schema, t.Name) }

func (t *table) column(name string) (column, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return column{}, false
}

func (t *table) columnNames() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

const selectTable = `SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
	c.relpersistence::text AS persistence,
	c.relreplident::text AS identity, pg_get_userbyid(c.relowner)::text AS owner, pg_has_role(c.relowner,
	'USAGE') AS owned_by_us,
	EXISTS (SELECT FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid WHERE i.inhparent = c.oid
	AND NOT child.relispartition) AS children,
	EXISTS (SELECT FROM pg_trigger t WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0
	AND t.tgrelid IN (
		WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION ALL SELECT h.inhrelid FROM tree
		JOIN pg_inherits h ON h.inhparent = tree.relid) SELECT relid FROM tree)) AS triggers,
	row_security_active(c.oid) AS row_security, current_user::text AS reader
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace `

// tableByName finds a table and its columns. It returns *MissingError when there is none.
func tableByName(ctx context.Context, q database.Querier, schema, name string) (*table, error) {
	t, err := loadTable(ctx, q, "WHERE n.nspname = $1 AND c.relname = $2", schema, name)
	if !errors.Is(err, pgx.ErrNoRows) {
		return t, err
	}
	rows, err := q.Query(ctx, `SELECT n.nspname || '.' || c.relname FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'embedsidecar')
		AND n.nspname !~ '^pg_(toast|temp)'
		ORDER BY 1 LIMIT 10000`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return nil, &refusal.MissingError{ConfigError: refusal.ConfigError{
		Problem: fmt.Sprintf("there is no table %s", database.Quote(schema, name)),
		Hint:    pipeline.DidYouMean(schema+"."+name, names),
	}}
}

// tableByOID finds a table that may have been renamed. It returns *MissingError when it is gone.
func tableByOID(ctx context.Context, q database.Querier, oid uint32) (*table, error) {
	t, err := loadTable(ctx, q, "WHERE c.oid = $1", oid)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &refusal.MissingError{ConfigError: refusal.ConfigError{Problem: "the source table was dropped"}}
	}
	return t, err
}

func loadTable(ctx context.Context, q database.Querier, where string, args ...any) (*table, error) {
	rows, err := q.Query(ctx, selectTable+where, args...)
	if err != nil {
		return nil, fmt.Errorf("look up table: %w", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[table])
	if err != nil {
		return nil, fmt.Errorf("look up table: %w", err)
	}
	rows, err = q.Query(ctx, `SELECT a.attnum AS number, a.attname::text AS name, a.atttypid AS type,
		a.atttypmod AS modifier,
		format_type(a.atttypid, a.atttypmod) AS type_name, t.typcategory::text AS category, a.attnotnull AS not_null,
		a.attgenerated <> '' AS generated,
		a.atthasdef OR a.attidentity <> '' AS "default",
		CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation
		THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) ELSE '' END AS collation
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.OID)
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", t.quoted(), err)
	}
	if t.Columns, err = pgx.CollectRows(rows, pgx.RowToStructByName[column]); err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", t.quoted(), err)
	}
	return t, nil
}

// kinds tells people what a relation that cannot be a source is.
var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index",
	"c": "a composite type", "t": "a TOAST table",
}

// embeddable returns why no pipeline can read the table, or "".
func (t *table) embeddable() (problem string, hint []string) {
	switch {
	case t.Kind != "r" && t.Kind != "p":
		return fmt.Sprintf("%s is %s: only tables send their changes", t.quoted(), kinds[t.Kind]),
			[]string{"name the table that the rows are in"}
	case t.Schema == "pg_catalog" || t.Schema == "information_schema" || t.Schema == "embedsidecar" ||
		strings.HasPrefix(t.Schema, "pg_"):
		return fmt.Sprintf("%s is a table of the system", t.quoted()), nil
	case t.Persistence == "u":
		return t.quoted() + " is unlogged: its changes are not in the WAL",
			[]string{"ALTER TABLE " + t.quoted() + " SET LOGGED;"}
	case t.Persistence == "t":
		return t.quoted() + " is a temporary table", nil
	case t.RowSecurity:
		return t.quoted() + " has row-level security that hides rows from this role: hidden rows would be taken for deleted ones", t.bypass()
	}
	return "", nil
}

// bypass is the way out of row-level security.
func (t *table) bypass() []string {
	return []string{"as superuser: ALTER ROLE " + database.Quote(t.Reader) + " BYPASSRLS;"}
}

// findKey fills in the columns that name a row, in the replication stream as in queries: those of the replica identity.
//
// Operators are those of the default btree operator class of what the index compares, so that sorting and comparing
// agree.
func (t *table) findKey(ctx context.Context, q database.Querier) (problem string, hint []string, err error) {
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
		return "", nil, fmt.Errorf("look up key of %s: %w", t.quoted(), err)
	}
	if t.Key, err = pgx.CollectRows(rows, pgx.RowToStructByName[pipeline.KeyColumn]); err != nil {
		return "", nil, fmt.Errorf("look up key of %s: %w", t.quoted(), err)
	}
	for _, k := range t.Key {
		if k.Equal == "" || k.Greater == "" {
			return fmt.Sprintf("key column %q of %s is of type %s, which has no order of its own", k.Name, t.quoted(), k.Type),
				nil, nil
		}
		if c, _ := t.column(k.Name); c.Generated {
			return fmt.Sprintf("key column %q of %s is generated, so the WAL does not name it", k.Name, t.quoted()),
				[]string{"ALTER TABLE " + t.quoted() +
					" REPLICA IDENTITY USING INDEX ...; with a unique index over NOT NULL columns that are not generated"}, nil
		}
	}
	alter := "ALTER TABLE " + t.quoted()
	switch {
	case t.Identity == "n":
		return t.quoted() + " has REPLICA IDENTITY NOTHING: once published, its UPDATEs and DELETEs would fail",
			[]string{alter + " REPLICA IDENTITY DEFAULT; (needs a primary key)"}, nil
	case len(t.Key) > 0:
		return "", nil, nil
	case t.Identity == "i":
		return t.quoted() + " has a replica identity whose index is gone",
			[]string{alter + " REPLICA IDENTITY DEFAULT; (needs a primary key)"}, nil
	case t.Identity == "f":
		return t.quoted() + " has no primary key, so its rows have no name", []string{alter + " ADD PRIMARY KEY (...);"}, nil
	default:
		return t.quoted() + " has no primary key that can name its rows in the WAL (a deferrable one cannot)",
			[]string{alter + " ADD PRIMARY KEY (...);", "or, with a unique index over NOT NULL columns: " + alter +
				" REPLICA IDENTITY USING INDEX ...;"}, nil
	}
}

// keyNames returns the names of the key columns, in the order of the key.
func keyNames(key []pipeline.KeyColumn) []string {
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

// checkLeaves makes sure that a change of any partition names its row by the key of the root.
func (t *table) checkLeaves(ctx context.Context, q database.Querier) (problem string, hint []string, err error) {
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
		return "", nil, fmt.Errorf("look up partitions of %s: %w", t.quoted(), err)
	}
	type leaf struct {
		Schema, Name, Kind, Persistence, Identity string
		Key                                       []string
	}
	leaves, err := pgx.CollectRows(rows, pgx.RowToStructByName[leaf])
	if err != nil {
		return "", nil, fmt.Errorf("look up partitions of %s: %w", t.quoted(), err)
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
						[]string{"ALTER TABLE " + name + " REPLICA IDENTITY DEFAULT; (or USING INDEX over the key of " + t.quoted() +
							")"}, nil
				}
			}
		}
	}
	return "", nil, nil
}
