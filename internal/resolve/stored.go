package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/catalog"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Stored is a row of embedsidecar.pipeline.
type Stored struct {
	PipelineID       int32
	Name             string
	TableOID         uint32
	TableSchema      string
	TableName        string
	SourceColumns    []string
	TextExpression   string
	FilterExpression string
	KeyColumns       []string
	WatchedColumns   []string
	WatchAll         bool
	Functions        []string          // that text and filter call, as far as somebody may replace them
	Renamed          map[string]string // columns of its table that were renamed since: the new name by the old one
	// the generated columns are made of the columns that they were made of when it was found out what text and filter
	// read
	AsMade            bool
	DestinationColumn string
	DestinationSchema string
	DestinationTable  string
	DestinationMoved  bool // the embedding table is called otherwise than it is written down
	Dims              int
	Plugin            string
	Model             string
	Chunking          pipeline.Chunking
	Generation        int32
	Fingerprint       string
	Lane              pipeline.Lane
	Enabled           bool
	Status            string
	StatusDetail      string
	SlotName          string
	Published         bool
	DefinitionVersion int32
	Definitions       map[string]int32 // the version at which each was applied last, by its digest

	Written pipeline.Spec `db:"-"` // as it is written down
	Moved   bool          `db:"-"` // some of its names are not those that are written down
}

// selectStored reads pipelines. A table is published by its own entry, by that of a partitioned table above it, or
// because the publication takes all tables. An embedding table is known by its name, or by its number where no table
// has that name any more: it was renamed then, or moved with its schema.
const selectStored = `SELECT p.pipeline_id, p.name, p.table_oid, p.table_schema::text, p.table_name::text,
	p.source_columns::text[],
	coalesce(p.text_expression, '') AS text_expression, coalesce(p.filter_expression, '') AS filter_expression,
	p.key_columns::text[],
	coalesce(p.watched_columns, '{}')::text[] AS watched_columns, p.watched_columns IS NULL AS watch_all, p.functions,
	coalesce((SELECT jsonb_object_agg(n.key, a.attname) FROM jsonb_each_text(p.column_numbers) AS n JOIN pg_attribute AS a
		ON a.attrelid = p.table_oid AND a.attnum = n.value::int AND NOT a.attisdropped WHERE a.attname <> n.key),
		'{}') AS renamed,
	p.generated_columns <@ coalesce((SELECT jsonb_object_agg(a.attname,
	(SELECT coalesce(string_agg(quote_ident(b.attname), ',' ORDER BY b.attname), '') FROM pg_attribute AS b
		WHERE b.attrelid = a.attrelid AND b.attnum <> a.attnum AND EXISTS (SELECT FROM pg_depend AS d LEFT
		JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
			WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = b.attnum
				AND (f.adrelid = a.attrelid AND f.adnum = a.attnum OR d.classid = 'pg_class'::regclass AND d.objid = a.attrelid
				AND d.objsubid = a.attnum))))
		FROM pg_attribute AS a WHERE a.attrelid = p.table_oid AND a.attgenerated <> ''), '{}') AS as_made,
	coalesce(p.destination_column::text, '') AS destination_column, coalesce(d.nspname, p.destination_schema,
	'')::text AS destination_schema,
	coalesce(d.relname, p.destination_table, '')::text AS destination_table, d.relname IS NOT NULL AS destination_moved,
	p.dims, p.plugin, p.model, p.chunking, p.generation, p.fingerprint, p.lane, p.enabled,
	p.status, p.status_detail, p.slot_name::text, p.definition_version, p.definitions,
	coalesce(b.pubinsert AND b.pubupdate AND b.pubdelete AND b.pubtruncate AND NOT b.pubviaroot, false)
	AND NOT EXISTS (WITH RECURSIVE tree AS (SELECT p.table_oid AS relid UNION ALL SELECT h.inhrelid FROM tree AS t
	JOIN pg_inherits h ON h.inhparent = t.relid)
		SELECT FROM pg_publication_rel r JOIN tree AS t ON t.relid = r.prrelid JOIN pg_class c ON c.oid = p.table_oid
		WHERE c.relkind = 'p' AND r.prpubid = b.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL)
	AND (b.puballtables
		OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = b.oid AND to_jsonb(r) ->> 'prqual' IS NULL
		AND r.prrelid IN (
			WITH RECURSIVE above AS (SELECT p.table_oid AS relid UNION ALL
				SELECT h.inhparent FROM above AS a JOIN pg_inherits AS h ON h.inhrelid = a.relid)
			SELECT relid FROM above))) AS published
	FROM embedsidecar.pipeline p JOIN embedsidecar.lsn_checkpoint k ON k.slot_name = p.slot_name
	LEFT JOIN pg_publication b ON b.pubname = k.publication
	LEFT JOIN LATERAL (SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = p.destination_oid AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_class o
		JOIN pg_namespace m ON m.oid = o.relnamespace
			WHERE m.nspname = p.destination_schema AND o.relname = p.destination_table)) AS d ON true `

func ReadStored(ctx context.Context, q database.Querier, where string, args ...any) ([]Stored, error) {
	rows, err := q.Query(ctx, selectStored+where+" ORDER BY p.pipeline_id", args...)
	if err != nil {
		return nil, fmt.Errorf("read pipelines: %w", err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stored])
	if err != nil {
		return nil, fmt.Errorf("read pipelines: %w", err)
	}
	for i := range stored {
		stored[i].Written = stored[i].Spec()
	}
	return stored, nil
}

func (s *Stored) Spec() pipeline.Spec {
	return pipeline.Spec{
		Name: s.Name, Schema: s.TableSchema, Table: s.TableName, Columns: s.SourceColumns, Text: s.TextExpression,
		Filter:     s.FilterExpression,
		IntoColumn: s.DestinationColumn, IntoSchema: s.DestinationSchema, IntoTable: s.DestinationTable,
		Plugin: s.Plugin, Model: s.Model, Priority: s.Lane, Enabled: s.Enabled, Chunking: s.Chunking,
	}
}

// Current returns the pipeline's row with the names that the columns of its table have now. What an expression of the
// user's names stays: it is for him to change.
func (s *Stored) Current() *Stored {
	now := *s
	for _, list := range []*[]string{&now.SourceColumns, &now.KeyColumns, &now.WatchedColumns} {
		*list = slices.Clone(*list)
		for i, name := range *list {
			(*list)[i] = s.nameNow(name)
			now.Moved = now.Moved || (*list)[i] != name
		}
	}
	now.DestinationColumn = s.nameNow(s.DestinationColumn)
	now.Moved = now.Moved || now.DestinationColumn != s.DestinationColumn
	return &now
}

// nameNow returns the name that a column has now.
func (s *Stored) nameNow(name string) string {
	if now, ok := s.Renamed[name]; ok {
		return now
	}
	return name
}

// columnsOfText returns the columns of the default text; a text of the user's has none.
func columnsOfText(s *Stored) []string {
	if s.TextExpression != "" {
		return nil
	}
	return s.SourceColumns
}

// Follow gives columns that a configuration names as they were called before the name that they have now.
func (s *Stored) Follow(spec pipeline.Spec, t *catalog.Table) (now pipeline.Spec, warnings []string) {
	name := func(old string) string {
		if _, there := t.Column(old); there || s.nameNow(old) == old {
			return old
		}
		warnings = append(warnings, fmt.Sprintf("column %q of %s is now called %q: name it so in the configuration", old,
			t.Quoted(), s.nameNow(old)))
		return s.nameNow(old)
	}
	spec.Columns = slices.Clone(spec.Columns)
	for i, c := range spec.Columns {
		spec.Columns[i] = name(c)
	}
	if spec.ToColumn() {
		spec.IntoColumn = name(spec.IntoColumn)
	}
	return spec, warnings
}

// Sharing returns the stored pipeline of another name that has the same destination, or nil.
func Sharing(spec pipeline.Spec, all []Stored) *Stored {
	for i := range all {
		if all[i].Name != spec.Name && catalog.DestinationName(all[i].Spec()) == catalog.DestinationName(spec) {
			return &all[i]
		}
	}
	return nil
}

// RenamedTo is the way out for a configuration that names a table as it was called.
func RenamedTo(now string) []string {
	return []string{"the table is now called " + now + ": name it so in the configuration"}
}

// OnlyRenamed compares all but the name of two pipelines, and their keys, which are those of one table.
func OnlyRenamed(p *pipeline.Pipeline, fingerprint string, old *pipeline.Pipeline) bool {
	return p.OID == old.OID && catalog.DestinationName(p.Spec) == catalog.DestinationName(old.Spec) && fingerprint == old.Fingerprint &&
		p.Text == old.Text && p.Filter == old.Filter && slices.Equal(p.Columns, old.Columns) && p.Chunking == old.Chunking &&
		p.WatchAll == old.WatchAll && slices.Equal(p.Watched, old.Watched)
}
