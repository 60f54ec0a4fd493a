package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// langchain reads the table of LangChain's PGVector, into which the application itself writes documents.
func langchain(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	const table = "langchain_pg_embedding"
	var schema string
	err := tx.QueryRow(ctx, "SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"+
		" WHERE c.relname = $1 AND c.relkind IN ('r', 'p') ORDER BY n.nspname <> 'public', 1 LIMIT 1", table).Scan(&schema)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", table, err)
	}
	i := Item{Name: "langchain", From: database.Quote(schema, table), Filter: []string{"collection_id"}}
	i.Spec.Schema, i.Spec.Table, i.Spec.Columns, i.Spec.IntoColumn = schema, table, []string{"document"}, "embedding"
	i.Spec.Model, i.Place.From = o.Model, "embedding"
	err = catalog.UntrustedOwners(ctx, tx, []string{i.From, database.Quote(schema, "langchain_pg_collection")}, nil)
	if err != nil {
		return nil, err
	}
	var vector string
	if err := tx.QueryRow(ctx, "SELECT n.nspname::text FROM pg_extension AS e JOIN pg_namespace AS n"+
		" ON n.oid = e.extnamespace WHERE e.extname = 'vector'").Scan(&vector); err != nil {
		return nil, fmt.Errorf("look for pgvector: %w", err)
	}
	rows, _ := tx.Query(ctx, "SELECT coalesce(c.name, '?'), e.dims FROM (SELECT collection_id, "+database.Quote(vector)+
		".vector_dims(embedding) AS dims FROM "+i.From+" WHERE embedding IS NOT NULL GROUP BY 1, 2) AS e LEFT JOIN "+
		database.Quote(schema, "langchain_pg_collection")+" AS c ON c.uuid = e.collection_id ORDER BY 2, 1")
	var (
		name  string
		dims  int
		width int
		other []string
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &dims}, func() error {
		width = cmp.Or(width, dims)
		if other = append(other, fmt.Sprintf("%s (%d)", name, dims)); dims != width {
			width = -1
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", i.From, err)
	}
	if width < 0 {
		i.Not = append(i.Not, "its collections are of several widths, and so of several models: "+strings.Join(other, ", "))
	}
	i.Notes = append(i.Notes, "collections: "+strings.Join(other, ", "),
		"an application that still embeds documents when it adds them pays for that; add them without a vector instead")
	return []Item{i}, nil
}

// pgedge reads the registry of pgEdge Vectorizer.
func pgedge(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	ok, err := registry(ctx, tx, "pgedge_vectorizer.vectorizers", "pgedge_vectorizer.queue")
	if err == nil {
		err = catalog.UntrustedOwners(ctx, tx, nil, []string{"pgedge_vectorizer.disable_vectorization"})
	}
	if !ok || err != nil {
		return nil, err
	}
	var works int
	err = tx.QueryRow(ctx, "SELECT count(*) FROM pgedge_vectorizer.queue WHERE status = 'processing'").Scan(&works)
	if err != nil {
		return nil, fmt.Errorf("read the queue of pgEdge Vectorizer: %w", err)
	}
	if works > 0 {
		return nil, working("pgEdge Vectorizer", fmt.Sprintf("%d texts are in work", works),
			"take it out of shared_preload_libraries, or set pgedge_vectorizer.num_workers = 0, and import again")
	}
	rows, _ := tx.Query(ctx, "SELECT v.source_table, v.source_column::text, v.chunk_table,"+
		" coalesce(v.source_pk::text, '') FROM pgedge_vectorizer.vectorizers AS v ORDER BY v.id")
	type row struct{ Table, Column, Chunks, Key string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, fmt.Errorf("read pgedge_vectorizer.vectorizers: %w", err)
	}
	items := []Item{}
	for _, r := range all {
		i := Item{From: r.Table + "." + r.Column}
		if i.Spec.Schema, i.Spec.Table, err = split(ctx, tx, r.Table); err != nil {
			return nil, fmt.Errorf("look up %s: %w", r.Table, err)
		}
		i.Name = i.Spec.Schema + "." + i.Spec.Table
		i.Spec.Columns, i.Spec.Model = []string{r.Column}, o.Model
		schema, chunks, err := split(ctx, tx, database.Quote(r.Chunks))
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", r.Chunks, err)
		}
		i.Spec.IntoSchema, i.Spec.IntoTable = i.Spec.Schema, i.Spec.Table+"_embedding"
		from := database.Quote(schema, chunks)
		if err := catalog.UntrustedOwners(ctx, tx, []string{from}, nil); err != nil {
			return nil, err
		}
		i.Place.From = from
		i.Place.Key = []string{"source_id"}
		// A text that pgEdge has cut into chunks has no single vector.
		i.Place.Unless = "EXISTS (SELECT FROM pgedge_vectorizer.queue AS q WHERE q.chunk_id = g.id AND q.chunk_table = " +
			database.Literal(r.Chunks) + " AND q.status <> 'completed') OR EXISTS (SELECT FROM " + from +
			" AS h WHERE h.source_id = g.source_id AND h.id <> g.id)"
		var cut, texts int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FILTER (WHERE n > 1), count(*) FROM (SELECT count(*) AS n FROM "+from+
			" GROUP BY source_id) AS s").Scan(&cut, &texts); err != nil {
			return nil, fmt.Errorf("read %s: %w", from, err)
		}
		if cut > 0 {
			i.Not = append(i.Not, fmt.Sprintf("%d of %d texts are cut into chunks, in a way that is not known here: "+
				"configure a pipeline with chunking, and let it embed them",
				cut, texts))
		}
		// Their function finds its triggers and its entry by the table's name in the session's search_path.
		if r.Table == identifier(i.Spec.Table) || r.Table == database.Quote(i.Spec.Table) {
			if err := catalog.UntrustedMakers(ctx, tx, i.Spec.Schema); err != nil {
				return nil, err
			}
			i.Finish = []string{"SET LOCAL search_path = pg_catalog, " + database.Quote(i.Spec.Schema)}
		}
		i.Finish = append(i.Finish, fmt.Sprintf("SELECT pgedge_vectorizer.disable_vectorization(%s, %s, true)",
			database.Literal(database.Quote(i.Spec.Schema, i.Spec.Table)), database.Literal(r.Column)))
		items = append(items, i)
	}
	return items, nil
}

// supabaseJob is a table with the triggers of Supabase's guide.
type supabaseJob struct{ Schema, Table, Function, Column string }

// returned matches a function of the guide with a single RETURN expression.
var returned = regexp.MustCompile(`(?is)^\s*begin\s+return\s+(.+?);\s*end;?\s*$`)

// supabase reads the triggers of Supabase's guide to automatic embeddings. Their arguments are the function that makes
// the text, and the vector column.
func supabase(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	var util string
	err := tx.QueryRow(ctx, "SELECT n.nspname::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace"+
		" WHERE p.proname = 'queue_embeddings' LIMIT 1").Scan(&util)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the functions of the guide: %w", err)
	}
	rows, _ := tx.Query(ctx, `SELECT DISTINCT n.nspname::text, c.relname::text, a[1], a[2] FROM pg_trigger AS t
		JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid =
		c.relnamespace CROSS JOIN LATERAL (SELECT string_to_array(encode(t.tgargs, 'escape'), '\000') AS a) AS s
		WHERE p.proname = 'queue_embeddings' AND NOT t.tgisinternal ORDER BY 1, 2`)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[supabaseJob])
	if err != nil {
		return nil, fmt.Errorf("look for the triggers of the guide: %w", err)
	}
	queued, err := there(ctx, tx, "pgmq.q_embedding_jobs")
	if err != nil {
		return nil, err
	}
	items := []Item{}
	for _, j := range jobs {
		i, err := j.item(ctx, tx, o, queued)
		if err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, nil
}

func (j *supabaseJob) item(ctx context.Context, tx pgx.Tx, o Options, queued bool) (Item, error) {
	i := Item{Name: j.Schema + "." + j.Table, From: "triggers of " + database.Quote(j.Schema, j.Table)}
	i.Spec.Schema, i.Spec.Table, i.Spec.IntoColumn, i.Spec.Model = j.Schema, j.Table, j.Column, o.Model
	i.Place.From = database.Quote(j.Column)
	if queued {
		i.Place.Unless = "EXISTS (SELECT FROM pgmq.q_embedding_jobs AS q WHERE q.message ->> 'schema' = " +
			database.Literal(j.Schema) + " AND q.message ->> 'table' = " + database.Literal(j.Table) +
			" AND q.message ->> 'id' = g.id::text)"
	}
	var body, argument, function string
	err := tx.QueryRow(ctx, `SELECT p.prosrc, coalesce(p.proargnames[1], ''), n.nspname || '.' || p.proname
		FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
		WHERE p.proname = $1 AND p.pronargs = 1 AND p.proargtypes[0] = (SELECT c.reltype FROM pg_class AS c
			WHERE c.oid = to_regclass($2)) LIMIT 1`, j.Function, database.Quote(j.Schema, j.Table)).Scan(&body, &argument, &function)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return i, fmt.Errorf("look for the function %s: %w", j.Function, err)
	}
	if err := catalog.UntrustedOwners(ctx, tx, nil, []string{function}); err != nil { // its code becomes the text
		return i, err
	}
	m := returned.FindStringSubmatch(body)
	if m == nil || argument == "" {
		i.Not = append(i.Not, "its text is made by the function "+j.Function+
			", which is more than one expression: configure that as text, and use embedsidecar adopt")
	} else {
		row := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(argument) + `\.`)
		i.Spec.Text = strings.TrimSpace(row.ReplaceAllString(m[1], ""))
	}
	rows, _ := tx.Query(ctx, `SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger AS t
		JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE t.tgrelid = to_regclass($1) AND NOT t.tgisinternal
			AND p.proname IN ('queue_embeddings', 'clear_column') ORDER BY 1`, database.Quote(j.Schema, j.Table))
	if i.Finish, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return i, fmt.Errorf("look for the triggers of %s: %w", j.Table, err)
	}
	if queued {
		i.Finish = append(i.Finish, "DELETE FROM pgmq.q_embedding_jobs AS q WHERE q.message ->> 'schema' = "+
			database.Literal(j.Schema)+" AND q.message ->> 'table' = "+database.Literal(j.Table))
	}
	i.Notes = append(i.Notes, "the schedule that calls process_embeddings, the Edge Function and the queue stay: remove "+
		"them when no other table uses them (SELECT cron.unschedule('process-embeddings'); "+
		"SELECT pgmq.drop_queue('embedding_jobs');)")
	return i, nil
}
