// Package catalog reads PostgreSQL's catalog: tables and their keys, what an expression reads, pgvector's types,
// destinations, the owners of these objects, and the version of our own schema. It changes nothing. All its connections
// come from package database, so search_path is pg_catalog.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Table is the catalog's information about a source table.
type Table struct {
	OID         uint32
	Schema      string
	Name        string
	Kind        string // pg_class.relkind
	Persistence string // pg_class.relpersistence
	Identity    string // pg_class.relreplident
	Unsent      bool   // the server would refuse its UPDATEs and DELETEs if it were published
	Children    bool   // other tables inherit from it
	Triggers    bool   // user triggers fire on an UPDATE of it or of a partition
	RowSecurity bool   // policies hide rows from the current role
	Reader      string // the role that read the catalog
	OwnedByUs   bool   // the current role has the owner's privileges
	Owner       string
	Usable      bool     // the role may use objects in its schema
	Writable    bool     // the role may read and write all of it
	Unlogged    string   // the table or partition that a crash empties, quoted; "": none
	Primary     []string // columns of the primary key
	Comment     string
	HashIndexed bool                 // an index finds texts by their hash
	Columns     []Column             `db:"-"`
	Key         []pipeline.KeyColumn `db:"-"` // of the replica identity
	KeyTypes    []TypeSchema         `db:"-"` // schemas of the key's types outside pg_catalog
	As          string               `db:"-"` // its alias in expressions; "": r
	Joined      []string             `db:"-"` // names in texts other than columns: those of joins

	TriggerMark string `db:"-"` // pipeline.TriggersOf it, if a superuser's session has examined it
	OwnerMark   string `db:"-"` // pipeline.OwnersOf it, if it was examined

	lent // why a superuser should not use it

	examined bool            // whether this part is known
	foreign  []strangersType // types in it whose owners are not trusted
}

// TypeSchema is a schema with types that statements name.
type TypeSchema struct {
	Name   string
	Usable bool // the role may use its types
}

// Column is the catalog's information about a column.
type Column struct {
	Number    int16
	Name      string
	Type      uint32
	Modifier  int32
	TypeName  string // with modifier, ready for a definition
	Category  string // pg_type.typcategory
	NotNull   bool
	Generated bool
	Default   bool
	Base      uint32 // the base type of a domain, else its type
	BaseName  string // with modifier, ready for a definition
	Collation string // as a clause for a definition with BaseName; "" for the type's default
	Readable  bool   // by the role that read the catalog
	Updatable bool
}

// Quoted returns the quoted name with its schema.
func (t *Table) Quoted() string { return database.Quote(t.Schema, t.Name) }

// Whose says who owns the table.
func (t *Table) Whose() string { return fmt.Sprintf("table %s belongs to %q", t.Quoted(), t.Owner) }

// Column returns the column with a name.
func (t *Table) Column(name string) (Column, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return Column{}, false
}

// Unreadable returns the names of the columns that the role may not read.
func (t *Table) Unreadable() (names []string) {
	for _, c := range t.Columns {
		if !c.Readable {
			names = append(names, c.Name)
		}
	}
	return names
}

// ColumnNames returns the names of the columns, in their order.
func (t *Table) ColumnNames() []string {
	return lists.Map(t.Columns, func(c Column) string { return c.Name })
}

// Known caches tables that were read together: a thousand take as many statements as one. Other tables are looked up
// individually. A nil Known is empty.
type Known struct {
	tables  []*Table
	oids    map[uint32]*Table
	names   map[[2]string]*Table
	trusted map[uint32]bool // embedding tables that only trusted roles control
	vector  *VectorType     // nil: no type is available
}

// Want identifies a table to read.
type Want struct {
	OID          uint32 // 0: it is found by its name
	Schema, Name string
	Into         bool // it is an embedding table
}

// Look reads tables together. It leaves out missing ones.
func Look(ctx context.Context, tx pgx.Tx, wants ...Want) (*Known, error) {
	k, err := find(ctx, tx, wants)
	if err != nil {
		return nil, err
	}
	if err := examine(ctx, tx, k.tables...); err != nil {
		return nil, err
	}
	var into []uint32
	for _, w := range wants {
		if t := k.find(w); w.Into && t != nil {
			into = append(into, t.OID)
		}
	}
	if len(into) > 0 {
		found, err := database.Strangers(ctx, tx.Conn(), into...)
		if err != nil {
			return nil, err
		}
		for _, oid := range into {
			k.trusted[oid] = len(found) == 0 // if false, each is checked individually
		}
	}
	vector, err := FindVector(ctx, tx, "")
	if _, missing := errors.AsType[*refusal.ConfigError](err); missing {
		return k, nil
	}
	k.vector = &vector
	return k, err
}

// find is Look without the trust checks.
func find(ctx context.Context, q database.Querier, wants []Want) (*Known, error) {
	k := &Known{oids: map[uint32]*Table{}, names: map[[2]string]*Table{}, trusted: map[uint32]bool{}}
	oids, schemas, names := []uint32{}, []string{}, []string{}
	for _, w := range wants {
		if w.OID != 0 {
			oids = append(oids, w.OID)
		} else {
			schemas, names = append(schemas, w.Schema), append(names, w.Name)
		}
	}
	var err error
	if k.tables, err = database.Collect(ctx, q, "find_tables", pgx.RowToAddrOfStructByName[Table],
		pgx.StrictNamedArgs{"tables": oids, "schemas": schemas, "names": names}); err != nil || len(k.tables) == 0 {
		return k, wrap.Errorf(err, "look up tables")
	}
	for _, t := range k.tables {
		k.oids[t.OID], k.names[[2]string{t.Schema, t.Name}] = t, t
	}
	args := pgx.StrictNamedArgs{"tables": slices.Collect(maps.Keys(k.oids))}
	columns, err := database.Collect(ctx, q, "table_columns", pgx.RowToStructByName[struct {
		Table uint32
		Column
	}], args)
	if err != nil {
		return nil, fmt.Errorf("look up columns: %w", err)
	}
	for _, c := range columns {
		k.oids[c.Table].Columns = append(k.oids[c.Table].Columns, c.Column)
	}
	keys, err := database.Collect(ctx, q, "table_keys", pgx.RowToStructByName[struct {
		Table      uint32
		TypeSchema string
		TypeUsable bool
		pipeline.KeyColumn
	}], args)
	if err != nil {
		return nil, fmt.Errorf("look up keys: %w", err)
	}
	for _, c := range keys {
		t := k.oids[c.Table]
		t.Key = append(t.Key, c.KeyColumn)
		if c.TypeSchema != "pg_catalog" {
			t.KeyTypes = append(t.KeyTypes, TypeSchema{c.TypeSchema, c.TypeUsable})
		}
	}
	return k, nil
}

func (k *Known) find(w Want) *Table {
	switch {
	case k == nil:
		return nil
	case w.OID != 0:
		return k.oids[w.OID]
	}
	return k.names[[2]string{w.Schema, w.Name}]
}

// table returns a table for one pipeline, or nil if it does not exist.
func (k *Known) table(ctx context.Context, q database.Querier, w Want) (*Table, error) {
	t := k.find(w)
	if t == nil {
		alone, err := find(ctx, q, []Want{w})
		if err != nil || len(alone.tables) == 0 {
			return nil, err
		}
		return alone.tables[0], nil
	}
	own := *t
	own.Key = slices.Clone(t.Key)
	return &own, nil
}

// TableByName reads a table and its columns. It returns *MissingError if it does not exist.
func TableByName(ctx context.Context, q database.Querier, schema, name string) (*Table, error) {
	return (*Known)(nil).TableByName(ctx, q, schema, name)
}

// TableByName is the function of that name with a cache.
func (k *Known) TableByName(ctx context.Context, q database.Querier, schema, name string) (*Table, error) {
	t, err := k.table(ctx, q, Want{Schema: schema, Name: name})
	if err != nil || t != nil {
		return t, err
	}
	names, err := database.Collect(ctx, q, "table_names", pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return nil, &refusal.MissingError{ConfigError: refusal.ConfigError{
		Problem: fmt.Sprintf("there is no table %s", database.Quote(schema, name)),
		Hint:    spelling.DidYouMean(schema+"."+name, names),
	}}
}

// TableByOID reads a table that may have been renamed. It returns *MissingError if it does not exist.
func TableByOID(ctx context.Context, q database.Querier, oid uint32) (*Table, error) {
	return (*Known)(nil).TableByOID(ctx, q, oid)
}

// TableByOID is the function of that name with a cache.
func (k *Known) TableByOID(ctx context.Context, q database.Querier, oid uint32) (*Table, error) {
	t, err := k.table(ctx, q, Want{OID: oid})
	if err == nil && t == nil {
		err = &refusal.MissingError{ConfigError: refusal.ConfigError{Problem: "the source table was dropped"}}
	}
	return t, err
}

// kinds names the relations that cannot be a source.
var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index",
	"c": "a composite type", "t": "a TOAST table",
}

// Embeddable returns *ConfigError when no pipeline can read the table.
func (t *Table) Embeddable() error {
	switch {
	case t.Kind != "r" && t.Kind != "p":
		return refusal.Coded(code.Table, fmt.Sprintf("%s is %s: only tables send their changes", t.Quoted(), kinds[t.Kind]),
			"name the table that the rows are in")
	case t.Schema == "pg_catalog" || t.Schema == "information_schema" || t.Schema == "embedsidecar" ||
		strings.HasPrefix(t.Schema, "pg_"):
		return refusal.Coded(code.Table, fmt.Sprintf("%s is a table of the system", t.Quoted()))
	case t.Persistence == "u":
		return refusal.Coded(code.Table, t.Quoted()+" is unlogged: its changes are not in the WAL",
			"ALTER TABLE "+t.Quoted()+" SET LOGGED;")
	case t.Persistence == "t":
		return refusal.Coded(code.Table, t.Quoted()+" is a temporary table")
	case t.Unsent:
		return unsent(t.Quoted())
	case t.RowSecurity:
		return refusal.Coded(code.RLS, t.Quoted()+" has row-level security that hides rows from this role: hidden rows would appear to be deleted", t.bypass()...)
	}
	return nil
}

// unsent is the error of a table or partition whose replica identity has columns that the WAL lacks.
func unsent(name string) error {
	return refusal.Coded(code.Key, name+" has REPLICA IDENTITY FULL and a generated column: from PostgreSQL 18 on, once "+
		"published, its UPDATEs and DELETEs would fail", "ALTER TABLE "+name+
		" REPLICA IDENTITY DEFAULT; (or USING INDEX ...)")
}

// bypass is a hint about row-level security.
func (t *Table) bypass() []string {
	return []string{"as superuser: ALTER ROLE " + database.Quote(t.Reader) + " BYPASSRLS;"}
}

// Plain reports whether all columns are of built-in text types and not generated: a text of them needs no query for
// what it reads and calls.
func (t *Table) Plain(names []string) bool {
	const own = 10_000 // OIDs from before initdb are below
	return !slices.ContainsFunc(names, func(name string) bool {
		c, ok := t.Column(name)
		return !ok || c.Generated || c.Category != "S" || c.Type >= own
	})
}

// AnyGenerated reports whether one of the columns is generated.
func (t *Table) AnyGenerated(names []string) bool {
	for _, name := range names {
		if c, _ := t.Column(name); c.Generated {
			return true
		}
	}
	return false
}

// Named returns *PermissionError when the role lacks USAGE on the table's schema. Then nothing else about it can be
// read.
func (t *Table) Named() error {
	if t.Usable {
		return nil
	}
	return &refusal.PermissionError{
		What: "look at table " + t.Quoted(), Role: t.Reader,
		SQL: []string{"GRANT USAGE ON SCHEMA " + database.Quote(t.Schema) + " TO " + database.Quote(t.Reader) + ";"},
	}
}

// Malformed returns mistakes that can be found without a database.
func Malformed(spec pipeline.Spec) string {
	for what, name := range map[string]string{
		"schema": spec.Schema, "table": spec.Table, "destination column": spec.IntoColumn,
		"schema of the embedding table": spec.IntoSchema,
		"embedding table":               spec.IntoTable,
	} {
		if problem := BadName(name); problem != "" && name != "" {
			return fmt.Sprintf("the name of the %s %s", what, problem)
		}
	}
	for _, c := range spec.Columns {
		if problem := BadName(c); problem != "" {
			return fmt.Sprintf("the name of a column %s", problem)
		}
	}
	switch {
	case spec.Name == "":
		return "a pipeline has no name"
	case strings.ContainsRune(spec.Name, 0):
		return "the name of the pipeline contains a NUL character"
	case spec.Schema == "" || spec.Table == "":
		return "the source table has no schema or no name"
	case len(spec.Columns) == 0 && spec.Text == "":
		return "neither columns nor a text are given"
	case (spec.IntoColumn == "") == (spec.IntoTable == ""):
		return "there must be one destination: a column of the table, or an embedding table"
	}
	if problem := spec.Joins.Mistake(spec.Text); problem != "" {
		return problem
	}
	if problem := spec.IgnoreMistake(); problem != "" {
		return "ignore: " + problem
	}
	return spec.ChunkingMistake()
}

// BadName returns why a name is not valid in the catalog, or "".
func BadName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("is %d bytes long; Postgres keeps %d", len(name), maxName)
	case strings.ContainsRune(name, 0):
		return "contains a NUL character"
	}
	return ""
}

// CheckKey returns *ConfigError when the key cannot identify rows, in the replication stream as in queries.
func (t *Table) CheckKey() error {
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
		return refusal.Coded(code.Key, t.Quoted()+" has no primary key and no replica identity", t.AddKey())
	default:
		return refusal.Coded(code.Key, t.Quoted()+
			" has no primary key that can name its rows in the WAL (a deferrable one cannot)",
			t.AddKey(), "or, with a unique index over NOT NULL columns: "+alter+
				" REPLICA IDENTITY USING INDEX ...;")
	}
}

// AddKey is the statement that adds a primary key to the table: of a column that looks like one, or of a new one.
func (t *Table) AddKey() string {
	alter := "ALTER TABLE " + t.Quoted()
	for _, name := range []string{"id", t.Name + "_id", strings.TrimSuffix(t.Name, "s") + "_id", "uuid"} {
		if _, there := t.Column(name); there {
			return alter + " ADD PRIMARY KEY (" + database.Quote(name) + ");"
		}
	}
	return alter + " ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;"
}

// FindRoutes finds the key columns that determine a row's partition.
func (t *Table) FindRoutes(ctx context.Context, q database.Reader) error {
	names, err := database.Collect(ctx, q, "partition_key", pgx.RowTo[string], pgx.StrictNamedArgs{"table": t.OID})
	if err != nil {
		return fmt.Errorf("look up how %s is partitioned: %w", t.Quoted(), err)
	}
	for i := range t.Key {
		// A list of arrays looks like one array.
		t.Key[i].Routes = slices.Contains(names, t.Key[i].Name) && !strings.HasSuffix(t.Key[i].Type, "[]")
	}
	return nil
}

// CheckLeaves returns *ConfigError when changes of a partition would not have the key of the root.
func (t *Table) CheckLeaves(ctx context.Context, q database.Querier) error {
	type leaf struct {
		Schema, Name, Kind, Persistence, Identity string
		Key                                       []string
		Unsent                                    bool
	}
	leaves, err := database.Collect(ctx, q, "table_leaves", pgx.RowToStructByName[leaf],
		pgx.StrictNamedArgs{"table": t.OID})
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
		case l.Unsent:
			return unsent(name)
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

// OurMark begins the comment on a destination that init made, to tell it from other tables. The comment names the
// source and the embedder. It outlives the schema embedsidecar: init uses it to take over an embedding table that
// uninstall left, and uninstall to find one that an earlier uninstall left.
const (
	OurMark   = "embedsidecar:"
	VectorsOf = OurMark + " vectors of "
	// a view made with embedsidecar.view_sql
	ViewOf = OurMark + " rows with their vectors"
)

// MarkOf returns the comment on a destination for a source table and an embedder.
func MarkOf(source *Table, fingerprint string) string {
	return VectorsOf + source.Quoted() + " by " + fingerprint
}

// markIn returns a comment if init made it, or "".
func markIn(comment string) string {
	if strings.HasPrefix(comment, OurMark) {
		return comment
	}
	return ""
}
