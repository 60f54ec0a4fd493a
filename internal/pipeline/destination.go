package pipeline

import (
	"cmp"

	"github.com/jackc/pgx/v5"
)

// Destination is where a pipeline's vectors go, beside the source table itself. Two of one source table are the same
// if they are equal.
type Destination struct {
	Column        string // of the source table; "": an embedding table
	Schema, Table string // of the embedding table
}

// Form is how a destination is made, as the catalogue has it. rows goes by it, and by InSource.
type Form struct {
	IntoOID     uint32 // of the embedding table that was looked at; 0: there is none, or it is not known
	IntoOwners  string // OwnersOf it, when it was looked at
	IntoParts   bool   // it is partitioned
	IntoNumber  int16  // of the column that was looked at; 0: an embedding table, or it is not known
	Stored      Stored // the type of the vectors, or what it is to be
	Chunked     bool   // the embedding table has the columns of chunks: text_hash is that of a chunk
	HashIndexed bool   // it has an index by text_hash
}

// Destination returns where the vectors go.
func (s Spec) Destination() Destination {
	if s.InSource() {
		return Destination{Column: s.IntoColumn}
	}
	return Destination{Schema: cmp.Or(s.IntoSchema, s.Schema), Table: s.IntoTable}
}

// InSource reports whether vectors stand in the source row itself. Then a write-back changes a row of users': it is
// locked first, their triggers run, the change comes back through the slot, and no text may read the column.
func (s Spec) InSource() bool { return s.IntoColumn != "" }

// Into returns the embedding table's name, quoted. It has no meaning for a column destination.
func (s Spec) Into() string {
	d := s.Destination()
	return pgx.Identifier{d.Schema, d.Table}.Sanitize()
}

// VectorTable returns the name of the table that holds the vectors, quoted.
func (s Spec) VectorTable() string {
	if s.InSource() {
		return s.Source()
	}
	return s.Into()
}

// VectorColumn returns the name of the column of that table that holds them.
func (s Spec) VectorColumn() string {
	if s.InSource() {
		return s.IntoColumn
	}
	return "embedding"
}

// VectorOf returns the SQL of the vector of the row called alias, of the table that holds them.
func (s Spec) VectorOf(alias string) string { return alias + "." + quote(s.VectorColumn()) }

// DestinationObject returns what COMMENT ON calls the destination: COLUMN or TABLE, with its name.
func (s Spec) DestinationObject() string {
	if s.InSource() {
		return "COLUMN " + s.DestinationName()
	}
	return "TABLE " + s.DestinationName()
}

// DestinationName returns the destination's name, quoted: "public"."docs"."embedding" or "public"."docs_embedding".
// Two pipelines whose destinations have the same name would overwrite each other's vectors.
func (s Spec) DestinationName() string {
	if s.InSource() {
		return s.Source() + "." + quote(s.IntoColumn)
	}
	return s.Into()
}

// TreeOf is an SQL expression for the OIDs of a table, by its own, and of its partitions if it may have any: without
// them, the server looks it up by its number. pg_partition_tree would lock the partitions.
func TreeOf(oid string, parts bool) string {
	if !parts {
		return "ARRAY[" + oid + "::oid]"
	}
	return "ARRAY(WITH RECURSIVE tree AS (SELECT " + oid + "::oid AS relid UNION ALL SELECT h.inhrelid FROM tree" +
		" JOIN pg_catalog.pg_inherits AS h ON h.inhparent = tree.relid JOIN pg_catalog.pg_class AS p" +
		" ON p.oid = h.inhrelid AND p.relispartition) SELECT relid FROM tree)"
}

// TriggersOf is an SQL expression that tells the triggers of a table, by its OID, and of its partitions, from those of
// any other moment.
func TriggersOf(oid string, parts bool) string {
	return "(SELECT 'triggers' || coalesce(pg_catalog.string_agg(' ' || t.oid::text || ' ' || t.xmin::text, '' ORDER BY t.oid)," +
		" '') FROM pg_catalog.pg_trigger AS t WHERE NOT t.tgisinternal AND t.tgrelid = ANY (" + TreeOf(oid, parts) + "))"
}

// OwnersOf is an SQL expression for the owners of a table, by its OID, and of its partitions.
func OwnersOf(oid string, parts bool) string {
	return "(SELECT pg_catalog.string_agg(c.relowner::text, ' ' ORDER BY c.oid) FROM pg_catalog.pg_class AS c" +
		" WHERE c.oid = ANY (" + TreeOf(oid, parts) + "))"
}
