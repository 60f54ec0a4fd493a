package pipeline

import (
	"cmp"

	"github.com/jackc/pgx/v5"
)

// Destination is where a pipeline's vectors go, relative to the source table. Destinations of one source table are the
// same if they are equal.
type Destination struct {
	Column        string // of the source table; "": an embedding table
	Schema, Table string // of the embedding table
}

// Form is how a destination is made, according to the catalog. Package rows depends on it, and on InSource.
type Form struct {
	IntoOID     uint32 // of the embedding table at the last check; 0: there is none, or unknown
	IntoOwners  string // OwnersOf it at the last check
	IntoParts   bool   // it is partitioned
	IntoNumber  int16  // of the column at the last check; 0: an embedding table, or unknown
	Stored      Stored // the type of the vectors, existing or planned
	Chunked     bool   // the embedding table has the columns of chunks: text_hash is that of a chunk
	HashIndexed bool   // it has an index on text_hash
}

// Destination returns where the vectors go.
func (s Spec) Destination() Destination {
	if s.InSource() {
		return Destination{Column: s.IntoColumn}
	}
	return Destination{Schema: cmp.Or(s.IntoSchema, s.Schema), Table: s.IntoTable}
}

// InSource reports whether vectors are stored in the source row itself. A write-back then changes a user's row: it
// locks the row first, fires the user's triggers, and comes back through the slot, and no text may read the column.
func (s Spec) InSource() bool { return s.IntoColumn != "" }

// Into returns the embedding table's quoted name. It is meaningless for a column.
func (s Spec) Into() string {
	d := s.Destination()
	return pgx.Identifier{d.Schema, d.Table}.Sanitize()
}

// VectorTable returns the quoted name of the table with the vectors.
func (s Spec) VectorTable() string {
	if s.InSource() {
		return s.Source()
	}
	return s.Into()
}

// VectorColumn returns the name of that table's column with the vectors.
func (s Spec) VectorColumn() string {
	if s.InSource() {
		return s.IntoColumn
	}
	return "embedding"
}

// VectorOf returns the SQL of the vector in that table's row called alias.
func (s Spec) VectorOf(alias string) string { return alias + "." + quote(s.VectorColumn()) }

// DestinationObject returns the destination for COMMENT ON: COLUMN or TABLE, with its name.
func (s Spec) DestinationObject() string {
	if s.InSource() {
		return "COLUMN " + s.DestinationName()
	}
	return "TABLE " + s.DestinationName()
}

// DestinationName returns the destination's quoted name: "public"."docs"."embedding" or "public"."docs_embedding". Two
// pipelines with the same one would overwrite each other's vectors.
func (s Spec) DestinationName() string {
	if s.InSource() {
		return s.Source() + "." + quote(s.IntoColumn)
	}
	return s.Into()
}

// TreeOf is an SQL expression for the OIDs of a table, given by its OID, and of its partitions if it may have any.
// Without partitions, the server uses an index lookup. pg_partition_tree would lock the partitions.
func TreeOf(oid string, parts bool) string {
	if !parts {
		return "ARRAY[" + oid + "::oid]"
	}
	return "ARRAY(WITH RECURSIVE tree AS (SELECT " + oid + "::oid AS relid UNION ALL SELECT h.inhrelid FROM tree" +
		" JOIN pg_catalog.pg_inherits AS h ON h.inhparent = tree.relid JOIN pg_catalog.pg_class AS p" +
		" ON p.oid = h.inhrelid AND p.relispartition) SELECT relid FROM tree)"
}

// TriggersOf is an SQL expression that identifies the current triggers of a table, given by its OID, and of its
// partitions.
func TriggersOf(oid string, parts bool) string {
	return "(SELECT 'triggers' || coalesce(pg_catalog.string_agg(' ' || t.oid::text || ' ' || t.xmin::text, '' ORDER BY t.oid)," +
		" '') FROM pg_catalog.pg_trigger AS t WHERE NOT t.tgisinternal AND t.tgrelid = ANY (" + TreeOf(oid, parts) + "))"
}

// OwnersOf is an SQL expression for the owners of a table, given by its OID, and of its partitions.
func OwnersOf(oid string, parts bool) string {
	return "(SELECT pg_catalog.string_agg(c.relowner::text, ' ' ORDER BY c.oid) FROM pg_catalog.pg_class AS c" +
		" WHERE c.oid = ANY (" + TreeOf(oid, parts) + "))"
}
