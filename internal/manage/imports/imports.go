// Package imports reads how other programs keep vectors in this database (pgai, pgEdge Vectorizer, the guide of
// Supabase, LangChain), and says as which pipelines they go on, and what is taken away of these programs in the end. It
// changes nothing itself, and names for each what cannot be carried over.
package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/adopt"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Sources are the programs that can be imported from.
var Sources = []string{"pgai", "pgedge", "supabase", "langchain"}

// Item is one pipeline that another program has in its own way.
type Item struct {
	Name   string        `json:"name"`  // of the pipeline
	From   string        `json:"from"`  // what the other program calls it
	Into   string        `json:"into"`  // its destination
	Model  string        `json:"model"` // as it is configured
	Not    []string      `json:"not_carried_over"`
	Notes  []string      `json:"notes"`
	Finish []string      `json:"finish"` // statements that end the other program, once all vectors are taken over
	Spec   pipeline.Spec `json:"-"`
	Remote []Setting     `json:"-"` // of the model, if it runs elsewhere; none: it is configured, or a folder
	Place  adopt.Place   `json:"-"`
	Filter []string      `json:"-"` // columns that searches over HTTP may filter by
}

// Setting is a key of a configuration with its value as YAML writes it.
type Setting struct{ Key, Value string }

// Carried reports whether the pipeline is taken over.
func (i *Item) Carried() bool { return len(i.Not) == 0 }

// Options say what is read.
type Options struct {
	Source string
	Model  string // that made the vectors; "": as the other program has it
}

// Read finds what a program has in the database: of pgai it may be no more than an empty schema. It returns
// *refusal.ConfigError where there is nothing, and *refusal.ConflictError where the program still works.
func Read(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	read := map[string]func(context.Context, pgx.Tx, Options) ([]Item, error){
		"pgai": pgai, "pgedge": pgedge, "supabase": supabase, "langchain": langchain,
	}[o.Source]
	items, err := read(ctx, tx, o)
	if err != nil {
		return nil, err
	}
	if items == nil || len(items) == 0 && o.Source != "pgai" {
		return nil, nothing(o.Source)
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	for i := range items {
		n := &items[i]
		n.Spec.Name, n.Spec.Enabled, n.Spec.Priority = n.Name, true, pipeline.Normal
		n.Model = n.Spec.Model
		n.Into = n.Spec.DestinationName()
		for _, list := range []*[]string{&n.Not, &n.Notes, &n.Finish} {
			*list = append([]string{}, *list...)
		}
		if n.Spec.Model == "" {
			n.Not = append(n.Not, "nothing tells which model made its vectors: name it with --model")
		}
	}
	return items, nil
}

func nothing(source string) error {
	return &refusal.ConfigError{
		Problem: "there is nothing of " + source + " in this database", Code: code.NoTable,
		Hint: []string{"sources are " + strings.Join(Sources, ", ")},
	}
}

// there reports whether a relation is in the database.
func there(ctx context.Context, tx pgx.Tx, names ...string) (bool, error) {
	all := true
	for _, name := range names {
		var found bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&found); err != nil {
			return false, fmt.Errorf("look for %s: %w", name, err)
		}
		all = all && found
	}
	return all, nil
}

// working is the error of a program that still works.
func working(who, detail string, hint ...string) error {
	return &refusal.ConflictError{Problem: who + " still works: " + detail, Hint: hint, Code: code.Conflict}
}

// YAML is the configuration of what is carried over.
func YAML(items []Item) string {
	var b strings.Builder
	b.WriteString("version: 1\n")
	var models []string
	for i := range items {
		n := &items[i]
		if !n.Carried() || len(n.Remote) == 0 || slices.Contains(models, n.Spec.Model) {
			continue
		}
		if models = append(models, n.Spec.Model); len(models) == 1 {
			b.WriteString("models:\n")
		}
		fmt.Fprintf(&b, "  - name: %s\n", text(n.Spec.Model))
		for _, s := range n.Remote {
			fmt.Fprintf(&b, "    %s: %s\n", s.Key, s.Value)
		}
	}
	b.WriteString("pipelines:\n")
	for i := range items {
		if items[i].Carried() {
			items[i].yaml(&b)
		}
	}
	return b.String()
}

func (i *Item) yaml(b *strings.Builder) {
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "    %s: %s\n", key, value)
		}
	}
	s := &i.Spec
	fmt.Fprintf(b, "  - name: %s\n", text(s.Name))
	line("table", text(tableName(s.Schema, s.Table)))
	if s.Text != "" {
		line("text", text(s.Text))
	} else {
		line("columns", list(s.Columns, identifier))
	}
	line("model", text(s.Model))
	if s.InSource() {
		line("into", "{column: "+text(identifier(s.IntoColumn))+"}")
	} else {
		line("into", "{table: "+text(tableName(s.IntoSchema, s.IntoTable))+"}")
	}
	if s.Index != "" {
		index := []string{"kind: " + s.Index}
		if s.IndexBuild.M > 0 {
			index = append(index, fmt.Sprintf("m: %d", s.IndexBuild.M))
		}
		if s.IndexBuild.EfConstruction > 0 {
			index = append(index, fmt.Sprintf("ef_construction: %d", s.IndexBuild.EfConstruction))
		}
		line("index", "{"+strings.Join(index, ", ")+"}")
	}
	if c := s.Chunking; c.On() {
		chunking := []string{"strategy: " + c.Strategy}
		if c.Characters > 0 {
			chunking = append(chunking, fmt.Sprintf("characters: %d", c.Characters))
		}
		if c.Overlap > 0 {
			chunking = append(chunking, fmt.Sprintf("overlap: %d", c.Overlap))
		}
		if c.Separators != "" {
			chunking = append(chunking, "separators: "+c.Separators)
		}
		if c.Context != "" {
			chunking = append(chunking, "context: "+text(c.Context))
		}
		if c.Between != "" {
			chunking = append(chunking, "context_separator: "+text(c.Between))
		}
		line("chunking", "{"+strings.Join(chunking, ", ")+"}")
	}
	if len(i.Filter) > 0 {
		line("search", "{filterable: "+list(i.Filter, identifier)+"}")
	}
}

// plain is what YAML reads as a text without quotes.
var plain = regexp.MustCompile(`^[a-z][a-z0-9_./-]*$`)

// text writes a text as YAML reads it.
func text(s string) string {
	if plain.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, s) {
		return s
	}
	return quoted(s)
}

// quoted writes a text as JSON does, which is YAML, too.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a text always can be
	}
	return strings.TrimSpace(b.String())
}

func list(names []string, write func(string) string) string {
	return "[" + strings.Join(lists.Map(names, func(name string) string { return text(write(name)) }), ", ") + "]"
}

// identifier writes a name as SQL reads it, quoted only where needed.
func identifier(name string) string {
	if regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(name) {
		return name
	}
	return database.Quote(name)
}

func tableName(schema, table string) string { return identifier(schema) + "." + identifier(table) }

// split parses the name of a table as the server prints it.
func split(ctx context.Context, tx pgx.Tx, name string) (schema, table string, err error) {
	err = tx.QueryRow(ctx, "SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid ="+
		" c.relnamespace WHERE c.oid = to_regclass($1)", name).Scan(&schema, &table)
	if errors.Is(err, pgx.ErrNoRows) && !strings.Contains(name, ".") {
		return split(ctx, tx, "public."+name)
	}
	return schema, table, err
}

// langchain reads the table of LangChain's PGVector, in which the application itself puts documents.
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
		if width == 0 {
			width = dims
		}
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
	if ok, err := there(ctx, tx, "pgedge_vectorizer.vectorizers"); !ok {
		return nil, err
	}
	var works int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM pgedge_vectorizer.queue WHERE status = 'processing'").Scan(&works)
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
		i.Place.From = from
		i.Place.Key = []string{"source_id"}
		// A text that was cut in their way has no vector of its own.
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
		// Their function finds its triggers and its entry by the name that the table has in the session's search_path.
		if r.Table == identifier(i.Spec.Table) || r.Table == database.Quote(i.Spec.Table) {
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

// returned is the one expression that a function of the guide returns.
var returned = regexp.MustCompile(`(?is)^\s*begin\s+return\s+(.+?);\s*end;?\s*$`)

// supabase reads the triggers of Supabase's guide to automatic embeddings: their arguments are the function that makes
// the text, and the column of the vectors.
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
	var body, argument string
	err := tx.QueryRow(ctx, `SELECT p.prosrc, coalesce(p.proargnames[1], '') FROM pg_proc AS p
		WHERE p.proname = $1 AND p.pronargs = 1 AND p.proargtypes[0] = (SELECT c.reltype FROM pg_class AS c
			WHERE c.oid = to_regclass($2)) LIMIT 1`, j.Function, database.Quote(j.Schema, j.Table)).Scan(&body, &argument)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return i, fmt.Errorf("look for the function %s: %w", j.Function, err)
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
