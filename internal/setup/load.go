package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// storedPipeline is a row of embedsidecar.pipeline.
type storedPipeline struct {
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

	written pipeline.Spec // as it is written down
	moved   bool          // some of its names are not those that are written down
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

func storedPipelines(ctx context.Context, q database.Querier, where string, args ...any) ([]storedPipeline, error) {
	rows, err := q.Query(ctx, selectStored+where+" ORDER BY p.pipeline_id", args...)
	if err != nil {
		return nil, fmt.Errorf("read pipelines: %w", err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByName[storedPipeline])
	if err != nil {
		return nil, fmt.Errorf("read pipelines: %w", err)
	}
	for i := range stored {
		stored[i].written = stored[i].spec()
	}
	return stored, nil
}

func (s *storedPipeline) spec() pipeline.Spec {
	return pipeline.Spec{
		Name: s.Name, Schema: s.TableSchema, Table: s.TableName, Columns: s.SourceColumns, Text: s.TextExpression,
		Filter:     s.FilterExpression,
		IntoColumn: s.DestinationColumn, IntoSchema: s.DestinationSchema, IntoTable: s.DestinationTable,
		Plugin: s.Plugin, Model: s.Model, Priority: s.Lane, Enabled: s.Enabled, Chunking: s.Chunking,
	}
}

// renamed returns the pipeline's row with the names that the columns of its table have now. What an expression of the
// user's names stays: it is for him to change.
func (s *storedPipeline) renamed() *storedPipeline {
	now := *s
	for _, list := range []*[]string{&now.SourceColumns, &now.KeyColumns, &now.WatchedColumns} {
		*list = slices.Clone(*list)
		for i, name := range *list {
			(*list)[i] = s.nameNow(name)
			now.moved = now.moved || (*list)[i] != name
		}
	}
	now.DestinationColumn = s.nameNow(s.DestinationColumn)
	now.moved = now.moved || now.DestinationColumn != s.DestinationColumn
	return &now
}

// nameNow returns the name that a column has now.
func (s *storedPipeline) nameNow(name string) string {
	if now, ok := s.Renamed[name]; ok {
		return now
	}
	return name
}

// recall takes what text and filter read from the pipeline's row and makes sure that it is still so.
func (f *findings) recall(ctx context.Context, tx pgx.Tx, s *storedPipeline) error {
	p, t := &f.pipeline, f.table
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: s.Name, Problem: problem, Hint: hint}
	}
	const again = "run embedsidecar init after changing the pipeline: it takes over what changed"
	if keys := keyNames(t.Key); !slices.Equal(keys, s.KeyColumns) {
		return fail(fmt.Sprintf("the key of %s is now (%s) and was (%s)", t.quoted(), database.QuoteAll(keys), database.QuoteAll(s.KeyColumns)),
			again)
	}
	for _, name := range slices.Concat(s.WatchedColumns, columnsOfText(s)) {
		if _, ok := t.column(name); !ok {
			return fail(fmt.Sprintf("table %s has no column %q any more", t.quoted(), name),
				append(pipeline.DidYouMean(name, t.columnNames()), again)...)
		}
	}
	p.ID, p.Generation, p.Fingerprint = s.PipelineID, s.Generation, s.Fingerprint
	p.Watched, p.WatchAll = s.WatchedColumns, s.WatchAll
	switch columns := columnsOfText(s); {
	case s.AsMade, s.WatchAll:
	case columns != nil && s.FilterExpression == "" && s.Chunking.Context == "":
		var err error
		if p.Watched, err = watchedOf(ctx, tx, t, columns); err != nil {
			return err
		}
		s.WatchedColumns = p.Watched
	default:
		// What a generated column is made of was found out by init, for expressions that may read any.
		if p.ToColumn() {
			return fail("a generated column of "+t.quoted()+
				" is made in another way than before: what the text reads must be found out anew", "run embedsidecar init")
		}
		p.Watched, p.WatchAll = nil, true
	}
	if !p.WatchAll {
		// Generated columns that a text of the user's names are missing here; running it over no row tells what these lack.
		f.reads = append([]string{}, s.WatchedColumns...)
		for _, c := range columnsOfText(s) {
			if !slices.Contains(f.reads, c) {
				f.reads = append(f.reads, c)
			}
		}
	}
	return nil
}

// watchedOf returns the columns to watch, other than those of the key, for a text of columns: themselves, or what
// they are generated from.
func watchedOf(ctx context.Context, q database.Querier, t *table, columns []string) ([]string, error) {
	rows, err := q.Query(ctx, `WITH text AS (SELECT attnum, attgenerated FROM pg_attribute WHERE attrelid = $1
		AND attname = ANY ($2::text[]))
		SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = $1 AND a.attgenerated = ''
		AND a.attname <> ALL ($3::text[]) AND a.attnum IN (
			SELECT attnum FROM text UNION
			SELECT d.refobjsubid FROM text JOIN pg_attrdef def ON def.adrelid = $1 AND def.adnum = text.attnum
			JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = $1
				AND (d.classid = 'pg_attrdef'::regclass AND d.objid = def.oid OR d.classid = 'pg_class'::regclass AND d.objid = $1
				AND d.objsubid = text.attnum)
			WHERE text.attgenerated <> '')
		ORDER BY a.attnum`, t.OID, columns, keyNames(t.Key))
	if err != nil {
		return nil, fmt.Errorf("look up what columns are made of: %w", err)
	}
	watched, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look up what columns are made of: %w", err)
	}
	return watched, nil
}

// columnsOfText returns the columns of the default text; a text of the user's has none.
func columnsOfText(s *storedPipeline) []string {
	if s.TextExpression != "" {
		return nil
	}
	return s.SourceColumns
}

// Load returns the pipelines of a slot as the database has them, for a role that may do no more than run. A pipeline
// that cannot work is returned with a status other than active and a detail that says why; then only its spec, ID,
// OID, generation, fingerprint, width and watched columns are certain, and of one whose table is locked the names of
// its key. It returns *NotSetUpError when the database has no schema of ours.
func Load(ctx context.Context, db database.DB, slot string) ([]pipeline.Pipeline, error) {
	var stored []storedPipeline
	err := database.Patiently(ctx, db, func(tx pgx.Tx) (err error) {
		if err := untrusted(ctx, tx); err != nil {
			return err
		}
		stored, err = storedPipelines(ctx, tx, "WHERE p.slot_name = $1", slot)
		return refusal.NotSetUp(err)
	})
	if err != nil {
		return nil, err
	}
	pipelines := make([]pipeline.Pipeline, len(stored))
	for i := range stored {
		// A transaction for each: one that held the locks of several tables, however weak, could deadlock with a user who
		// truncates them.
		err := database.ReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
			pipelines[i], err = load(ctx, tx, stored[i].renamed())
			return err
		})
		if database.LockedOut(err) {
			// Somebody alters that table. The others can go on, and this one is looked at again. It does not count as one that
			// cannot work: whoever waits for it waits on.
			pipelines[i] = locked(&stored[i])
		} else if err != nil {
			return nil, err
		}
	}
	return pipelines, nil
}

// settled is Load for somebody who looks once: it looks again while a table is locked.
func settled(ctx context.Context, db database.DB, slot string) (pipelines []pipeline.Pipeline, err error) {
	var failed error // Load has been patient itself
	err = database.UntilUnlocked(ctx, func() error {
		pipelines, failed = Load(ctx, db, slot)
		if slices.ContainsFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Status == pipeline.Locked }) {
			return database.ErrLocked
		}
		return nil
	})
	if errors.Is(err, database.ErrLocked) {
		err = nil // the pipeline says so
	}
	return pipelines, errors.Join(failed, err)
}

// off is a stored pipeline that cannot work, with what is certain of it.
func off(s *storedPipeline) pipeline.Pipeline {
	return pipeline.Pipeline{
		Spec: s.spec(), ID: s.PipelineID, OID: s.TableOID, Watched: s.WatchedColumns, WatchAll: s.WatchAll, Dims: s.Dims,
		Generation: s.Generation, Fingerprint: s.Fingerprint, Status: pipeline.Misconfigured,
	}
}

// locked is a stored pipeline whose table nobody can look at now. It was whole when it was set up, so its changes are
// matched as they were then: the names of the key's columns are all that this takes. Were they matched with nothing,
// each would ask for a scan.
func locked(s *storedPipeline) pipeline.Pipeline {
	p := off(s)
	p.Status, p.Detail = pipeline.Locked, "the table is locked by somebody"
	p.WatchAll = p.WatchAll || !s.AsMade
	for _, name := range s.KeyColumns {
		p.Key = append(p.Key, pipeline.KeyColumn{Name: name})
	}
	return p
}

// load confirms one stored pipeline. Only a failure to find out is an error.
func load(ctx context.Context, tx pgx.Tx, s *storedPipeline) (pipeline.Pipeline, error) {
	off := off(s)
	f, err := inspect(ctx, tx, s.spec(), Vectors{Dims: s.Dims, either: true}, s)
	var (
		missing *refusal.MissingError
		config  *refusal.ConfigError
		denied  *refusal.PermissionError
	)
	if err == nil && !f.destination.Exists {
		err = &refusal.ConfigError{
			Problem: "the destination " + destinationName(f.pipeline.Spec) + " is gone",
			Hint:    []string{"run embedsidecar init: it makes it anew"},
		}
	}
	if err == nil {
		err = f.chunkable()
	}
	if err == nil {
		err = f.retyped()
	}
	if err == nil {
		err = runnable(ctx, tx, f)
	}
	switch {
	case errors.As(err, &missing):
		var namesake string
		if err := tx.QueryRow(ctx, `SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
			JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2), '')`, s.TableSchema, s.TableName).Scan(&namesake); err != nil {
			return off, fmt.Errorf("load pipeline %q: %w", s.Name, err)
		}
		off.Status, off.Detail = pipeline.Missing, health.Gone(database.Quote(s.TableSchema, s.TableName), namesake).String()
	case errors.As(err, &config):
		off.Detail = detail(config.Problem, config.Hint)
	case errors.As(err, &denied):
		off.Detail = detail(denied.Error(), denied.SQL)
	case err != nil:
		return off, fmt.Errorf("load pipeline %q: %w", s.Name, err)
	case !s.Published:
		off = f.pipeline
		off.Status = pipeline.Unpublished
		off.Detail = detail(f.table.quoted()+" is not in the publication, or not with all of its changes",
			[]string{"run embedsidecar init as its owner"})
	default:
		return f.pipeline, nil
	}
	return off, nil
}

func detail(problem string, hint []string) string {
	for _, h := range hint {
		problem += "; " + strings.TrimSuffix(h, ";")
	}
	return problem
}

// runnable makes sure that what is stored as text, filter and context is one expression each, whoever wrote it there,
// and runs them over no row at all. The server then looks up names and privileges as it will when it matters. All of
// it goes by the extended protocol, in which the server refuses several statements.
func runnable(ctx context.Context, tx pgx.Tx, f *findings) error {
	sql := "SELECT " + TextExpression(&f.pipeline) + ", " + f.pipeline.ContextExpression() + ", " +
		FilterExpression(&f.pipeline) + " FROM " + f.pipeline.Source() + " AS r LIMIT 0"
	var problem string
	var hint []string
	err := database.RolledBack(ctx, tx, func(tx pgx.Tx) (err error) {
		if problem, hint, err = parseStored(ctx, tx, f); problem != "" || err != nil {
			return err
		}
		return database.Extended(ctx, tx, sql)
	})
	if database.Denied(err) {
		if missing := permitted(ctx, tx, f); missing != nil {
			return missing
		}
		if missing := unreadable(ctx, tx, f); missing != nil {
			return missing
		}
		return &refusal.ConfigError{Pipeline: f.pipeline.Name, Problem: "read " + f.table.quoted() + ": " + err.Error()}
	}
	if problem == "" && err != nil {
		problem, hint, err = badExpression(textWord, err)
	}
	if problem != "" || err != nil {
		return refusal.Either(&refusal.ConfigError{Pipeline: f.pipeline.Name, Problem: problem, Hint: hint}, err)
	}
	return permitted(ctx, tx, f)
}

// unreadable returns *PermissionError for columns that the expressions of the user's seem to name and that the role
// may not read, or nil.
func unreadable(ctx context.Context, q database.Querier, f *findings) error {
	p := &f.pipeline
	rows, err := q.Query(ctx, `SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0
		AND NOT a.attisdropped
		AND NOT has_column_privilege(a.attrelid, a.attnum, 'SELECT') ORDER BY a.attnum`, f.table.OID)
	if err != nil {
		return nil //nolint:nilerr // the server's own words are told instead
	}
	hidden, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	said := p.Text + "\n" + p.Filter + "\n" + p.Chunking.Context
	hidden = slices.DeleteFunc(hidden, func(name string) bool { return !strings.Contains(said, name) })
	var role string
	if len(hidden) == 0 || q.QueryRow(ctx, "SELECT current_user::text").Scan(&role) != nil {
		return nil
	}
	return &refusal.PermissionError{
		What: fmt.Sprintf("run pipeline %q: read column %s of %s", p.Name, database.QuoteAll(hidden), f.table.quoted()), Role: role,
		SQL: []string{"GRANT SELECT (" + database.QuoteAll(hidden) + ") ON " + f.table.quoted() + " TO " + database.Quote(role) + ";"},
	}
}

// parseStored has the server parse each expression of a stored pipeline, and run none.
func parseStored(ctx context.Context, tx pgx.Tx, f *findings) (problem string, hint []string, err error) {
	p := &f.pipeline
	for _, e := range []struct{ word, expression string }{
		{textWord, p.Text},
		{filterWord, p.Filter},
		{contextWord, p.Chunking.Context},
	} {
		if strings.TrimSpace(e.expression) == "" {
			continue
		}
		if problem, hint, err := parseExpression(ctx, tx, f.table, e.word, e.expression); problem != "" || err != nil {
			return problem, hint, err
		}
	}
	return "", nil, nil
}
