package imports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// vectorizer is a row of ai.vectorizer in any version of pgai: as an extension (2024) or as a library.
type vectorizer struct {
	ID           int              `json:"id"`
	Name         string           `json:"name"`
	SourceSchema string           `json:"source_schema"`
	SourceTable  string           `json:"source_table"`
	SourcePK     []pgaiKey        `json:"source_pk"`
	TargetSchema string           `json:"target_schema"` // in older versions; later in the configuration
	TargetTable  string           `json:"target_table"`
	ViewSchema   string           `json:"view_schema"`
	ViewName     string           `json:"view_name"`
	QueueSchema  string           `json:"queue_schema"`
	QueueTable   string           `json:"queue_table"`
	QueueFailed  string           `json:"queue_failed_table"`
	Disabled     bool             `json:"disabled"`
	Config       vectorizerConfig `json:"config"`
}

type pgaiKey struct {
	Name string `json:"attname"`
	No   int    `json:"pknum"`
}

type vectorizerConfig struct {
	Loading struct {
		Implementation string
		Column         string `json:"column_name"`
	}
	Parsing   struct{ Implementation string }
	Embedding struct {
		Implementation, Model string
		Dimensions            int
		BaseURL               string `json:"base_url"`
		APIKeyName            string `json:"api_key_name"`
	}
	Chunking struct {
		Implementation string
		Column         string `json:"chunk_column"` // before versions with loading
		Separator      *string
		Separators     []string
		Size           int  `json:"chunk_size"`
		Overlap        int  `json:"chunk_overlap"`
		Regex          bool `json:"is_separator_regex"`
	}
	Indexing struct {
		Implementation string
		M              int
		EfConstruction int `json:"ef_construction"`
	}
	Formatting  struct{ Implementation, Template string }
	Destination struct {
		Implementation string
		TargetSchema   string `json:"target_schema"`
		TargetTable    string `json:"target_table"`
		ViewSchema     string `json:"view_schema"`
		ViewName       string `json:"view_name"`
		Column         string `json:"embedding_column"`
	}
}

// pgai reads ai.vectorizer.
func pgai(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	ok, err := registry(ctx, tx, "ai.vectorizer")
	if err == nil {
		err = catalog.UntrustedOwners(ctx, tx, nil, []string{"ai.drop_vectorizer"}) // it is called at the end
	}
	if !ok || err != nil {
		return nil, err
	}
	if err := pgaiWorks(ctx, tx); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, "SELECT to_jsonb(v) FROM ai.vectorizer AS v ORDER BY v.id")
	all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, fmt.Errorf("read ai.vectorizer: %w", err)
	}
	items := []Item{}
	for _, row := range all {
		var v vectorizer
		if err := json.Unmarshal(row, &v); err != nil {
			return nil, fmt.Errorf("read ai.vectorizer: %w", err)
		}
		item, err := v.item(ctx, tx, o)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// pgaiWorks returns an error while a worker of pgai runs, because it would embed the rows again.
func pgaiWorks(ctx context.Context, tx pgx.Tx) error {
	var n int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"+
		" AND application_name LIKE 'pgai-worker%'").Scan(&n)
	if err != nil {
		return fmt.Errorf("look for workers of pgai: %w", err)
	}
	const stop = "stop it (pgai vectorizer worker, or its container), and import again"
	if n > 0 {
		return working("the worker of pgai", fmt.Sprintf("it has %d connections", n), stop)
	}
	if ok, err := there(ctx, tx, "ai.vectorizer_worker_process"); !ok || err != nil {
		return err
	}
	var ago, counts *float64
	err = tx.QueryRow(ctx, `SELECT extract(epoch FROM now() - p.last_heartbeat)::float8,
		extract(epoch FROM 2 * p.expected_heartbeat_interval)::float8 FROM ai.vectorizer_worker_process AS p
		WHERE p.last_heartbeat > now() - 2 * p.expected_heartbeat_interval ORDER BY p.last_heartbeat DESC LIMIT 1`).
		Scan(&ago, &counts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for workers of pgai: %w", err)
	}
	return working("the worker of pgai", fmt.Sprintf("its last sign of life is %.0f s old", *ago), stop,
		fmt.Sprintf("it counts as stopped after %.0f s", *counts))
}

func (v *vectorizer) item(ctx context.Context, tx pgx.Tx, o Options) (Item, error) {
	d := &v.Config.Destination
	if d.Implementation == "" { // the versions of 2024
		d.Implementation = "table"
		d.TargetSchema, d.TargetTable, d.ViewSchema, d.ViewName = v.TargetSchema, v.TargetTable, v.ViewSchema, v.ViewName
	}
	slices.SortFunc(v.SourcePK, func(a, b pgaiKey) int { return a.No - b.No })
	i := Item{Name: v.Name, From: fmt.Sprintf("vectorizer %d", v.ID)}
	i.Name = cmp.Or(i.Name, v.SourceSchema+"_"+v.SourceTable+"_embedding")
	i.Spec.Schema, i.Spec.Table = v.SourceSchema, v.SourceTable
	v.model(&i, o.Model)
	column := v.Config.Loading.Column
	switch l := v.Config.Loading.Implementation; l {
	case "", "row":
		column = v.Config.Chunking.Column
	case "column":
	default:
		i.Not = append(i.Not, "its text is loaded from "+l+", which is not in the table")
	}
	if p := v.Config.Parsing.Implementation; p != "" && p != "none" && p != "auto" {
		i.Not = append(i.Not, "its documents are parsed by "+p)
	}
	types, err := v.columns(ctx, tx)
	if err != nil {
		return i, err
	}
	if types[column] == "bytea" {
		i.Not = append(i.Not, "column "+column+" holds files (bytea), which are parsed")
	}
	i.Spec.Columns = []string{column}
	v.index(&i)
	keys := lists.Map(v.SourcePK, func(k pgaiKey) string { return k.Name })
	if ok, err := there(ctx, tx, database.Quote(v.QueueSchema, v.QueueTable)); err != nil {
		return i, err
	} else if ok { // rows that pgai has not yet processed
		i.Place.Unless = "EXISTS (SELECT FROM " + database.Quote(v.QueueSchema, v.QueueTable) + " AS q WHERE " +
			equal("q", keys, "g", keys) + ")"
	}
	if d.Implementation == "column" {
		v.intoColumn(&i, column, types)
		return i, nil
	}
	return i, v.intoTable(ctx, tx, &i, keys, types)
}

func (v *vectorizer) columns(ctx context.Context, tx pgx.Tx) (map[string]string, error) {
	types := map[string]string{}
	rows, err := tx.Query(ctx, "SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute AS a"+
		" WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped", database.Quote(v.SourceSchema, v.SourceTable))
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", v.SourceTable, err)
	}
	var name, typ string
	_, err = pgx.ForEachRow(rows, []any{&name, &typ}, func() error { types[name] = typ; return nil })
	return types, err
}

// model determines the model by its provider.
func (v *vectorizer) model(i *Item, named string) {
	e := v.Config.Embedding
	if named != "" {
		i.Spec.Model = named
		return
	}
	provider, model := e.Implementation, e.Model
	if before, after, ok := strings.Cut(model, "/"); ok && provider == "litellm" {
		provider, model = before, after
	}
	i.Spec.Model = model
	remote := func(dialect, key string) {
		i.Remote = []Setting{{"dialect", dialect}, {"model", model}}
		if e.Dimensions > 0 && dialect == "openai" {
			i.Remote = append(i.Remote, Setting{"dims", fmt.Sprint(e.Dimensions)})
		}
		if e.BaseURL != "" {
			i.Remote = append(i.Remote, Setting{"url", e.BaseURL})
		}
		if key != "" {
			i.Remote = append(i.Remote, Setting{"api_key_env", key})
		}
	}
	switch provider {
	case "openai":
		remote("openai", cmp.Or(e.APIKeyName, "OPENAI_API_KEY"))
	case "ollama":
		remote("ollama", "")
	case "voyageai", "voyage":
		remote("voyage", cmp.Or(e.APIKeyName, "VOYAGE_API_KEY"))
	case "cohere":
		remote("cohere", cmp.Or(e.APIKeyName, "COHERE_API_KEY"))
	default:
		i.Not = append(i.Not, fmt.Sprintf("its model %s is called through %s: configure it, and name it with --model",
			e.Model, e.Implementation))
	}
}

func (v *vectorizer) index(i *Item) {
	switch x := v.Config.Indexing; x.Implementation {
	case "hnsw":
		i.Spec.Index = pipeline.IndexHNSW
		i.Spec.IndexBuild = pipeline.IndexBuild{M: x.M, EfConstruction: x.EfConstruction}
	case "", "none", "default":
	default:
		i.Notes = append(i.Notes, "its index ("+x.Implementation+") is not built here: an HNSW index is")
		i.Spec.Index = pipeline.IndexHNSW
	}
}

// intoColumn carries over vectors in a column of the source table.
func (v *vectorizer) intoColumn(i *Item, column string, types map[string]string) {
	i.Spec.IntoColumn = v.Config.Destination.Column
	i.Place.From = database.Quote(i.Spec.IntoColumn)
	before, after, problem := template(v.Config.Formatting.Template, types)
	switch {
	case problem != "":
		i.Not = append(i.Not, problem)
	case len(before)+len(after) > 0:
		chunk := "coalesce(" + database.Quote(column) + "::text, '')"
		i.Spec.Text, i.Spec.Columns = strings.Join(slices.Concat(before, []string{chunk}, after), " || "), nil
	}
	i.Finish = v.drop()
}

// intoTable carries over vectors in a table of their own, with a view.
func (v *vectorizer) intoTable(ctx context.Context, tx pgx.Tx, i *Item, keys []string, types map[string]string) error {
	d := v.Config.Destination
	i.Spec.IntoSchema, i.Spec.IntoTable = d.TargetSchema, d.TargetTable+"_chunks"
	i.Place.From = database.Quote(d.TargetSchema, d.TargetTable)
	i.Place.Key, i.Place.Chunk = keys, "chunk"
	c := &i.Spec.Chunking
	switch k := v.Config.Chunking; k.Implementation {
	case "none":
		c.Strategy = pipeline.ChunkWhole
	case "character_text_splitter":
		separator := "\n\n"
		if k.Separator != nil {
			separator = *k.Separator
		}
		c.Strategy, c.Separators = pipeline.ChunkCharacter, array([]string{separator})
		c.Characters, c.Overlap = k.Size, k.Overlap
	case "recursive_character_text_splitter":
		c.Strategy, c.Separators = pipeline.ChunkRecursive, array(k.Separators)
		c.Characters, c.Overlap = k.Size, k.Overlap
	default:
		i.Not = append(i.Not, "its texts are cut by "+k.Implementation)
	}
	if v.Config.Chunking.Regex {
		i.Not = append(i.Not, "its separators are regular expressions")
	}
	before, after, problem := template(v.Config.Formatting.Template, types)
	switch {
	case problem != "":
		i.Not = append(i.Not, problem)
	case len(after) > 0:
		i.Not = append(i.Not, "its template has something behind $chunk: "+v.Config.Formatting.Template)
	case len(before) > 0:
		last, ok := literal(before[len(before)-1])
		if !ok || last == "" || len(before) == 1 && len([]rune(last)) == 1 {
			i.Not = append(i.Not, "its template has no text between a column and $chunk: "+v.Config.Formatting.Template)
			break
		}
		if len(before) == 1 { // a single text: its last character is the separator
			letters := []rune(last)
			before = []string{database.Literal(string(letters[:len(letters)-1])), ""}
			last = string(letters[len(letters)-1:])
		}
		c.Context, c.Between = strings.Join(before[:len(before)-1], " || "), last
	}
	ok, err := there(ctx, tx, i.Place.From)
	if err != nil {
		return err
	}
	if !ok {
		i.Not = append(i.Not, "its table "+i.Place.From+" is gone")
		return nil
	}
	return v.replace(ctx, tx, i, keys)
}

// replace adds the statements that replace the store with the embedding table, under the names of the store and its
// view.
func (v *vectorizer) replace(ctx context.Context, tx pgx.Tx, i *Item, keys []string) error {
	d := v.Config.Destination
	store, ours := i.Place.From, i.Spec.Into()
	view := database.Quote(d.ViewSchema, d.ViewName)
	rows, err := tx.Query(ctx, `SELECT DISTINCT c.oid::regclass::text, c.oid = to_regclass($2) FROM pg_depend AS p
		JOIN pg_rewrite AS r ON r.oid = p.objid AND p.classid = 'pg_rewrite'::regclass
		JOIN pg_class AS c ON c.oid = r.ev_class
		WHERE p.refobjid = to_regclass($1) AND c.oid <> p.refobjid`, store, view)
	if err != nil {
		return fmt.Errorf("look for what depends on %s: %w", store, err)
	}
	var name string
	var its, viewed bool
	if _, err = pgx.ForEachRow(rows, []any{&name, &its}, func() error {
		if viewed = viewed || its; !its {
			i.Not = append(i.Not, "the view "+name+" reads its table "+store+": drop it, and create it again afterwards")
		}
		return nil
	}); err != nil {
		return fmt.Errorf("look for what depends on %s: %w", store, err)
	}
	options, hides, err := guards(ctx, tx, store, view)
	if err != nil {
		return err
	}
	if hides {
		i.Not = append(i.Not, "its table "+store+" has row-level security, which a view in its place would not have: "+
			"disable it, or configure the pipeline yourself")
	}
	i.Finish = []string{
		"ALTER TABLE " + ours + " ADD COLUMN IF NOT EXISTS embedding_uuid uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid()",
		"UPDATE " + ours + " AS t SET embedding_uuid = o.embedding_uuid FROM " + store + " AS o WHERE " +
			equal("t", keys, "o", keys) + " AND t.chunk_no = o.chunk_seq",
	}
	if viewed {
		sql, err := v.view(ctx, tx, view, options, ours, keys)
		if err != nil {
			return err
		}
		i.Finish = append(i.Finish, sql)
	}
	grants, err := readers(ctx, tx, store, store)
	if err != nil {
		return err
	}
	if strings.Contains(options, "security_invoker") { // a reader of it needs rights on the tables behind it
		its, err := readers(ctx, tx, store, ours)
		if err != nil {
			return err
		}
		grants = append(grants, its...)
	}
	i.Finish = append(i.Finish, "DROP TABLE "+store, "CREATE VIEW "+store+" AS SELECT t.embedding_uuid, "+
		columnsOf("t", keys)+", t.chunk_no AS chunk_seq, t.chunk_text AS chunk, t.embedding FROM "+ours+" AS t")
	i.Finish = append(i.Finish, grants...)
	i.Finish = append(i.Finish, v.drop()...)
	return nil
}

// view returns the statement that makes the user's view read the embedding table.
func (v *vectorizer) view(ctx context.Context, tx pgx.Tx, view, options, ours string, keys []string) (string, error) {
	rows, _ := tx.Query(ctx, "SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = to_regclass($1)"+
		" AND a.attnum > 0 ORDER BY a.attnum", view)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("look up columns of %s: %w", view, err)
	}
	for n, name := range names {
		q := database.Quote(name)
		switch {
		case name == "chunk_seq":
			names[n] = "t.chunk_no AS chunk_seq"
		case name == "chunk":
			names[n] = "t.chunk_text AS chunk"
		case name == "embedding_uuid" || name == "embedding" || slices.Contains(keys, name):
			names[n] = "t." + q
		default:
			names[n] = "s." + q
		}
	}
	return "CREATE OR REPLACE VIEW " + view + options + " AS SELECT " + strings.Join(names, ", ") + " FROM " + ours +
		" AS t LEFT JOIN " + database.Quote(v.SourceSchema, v.SourceTable) + " AS s ON " + equal("t", keys, "s", keys), nil
}

// drop returns the statements that remove the vectorizer: its trigger, queues and row.
func (v *vectorizer) drop() []string {
	list := []string{fmt.Sprintf("SELECT ai.drop_vectorizer(%d)", v.ID)}
	if v.QueueFailed != "" {
		list = append(list, "DROP TABLE IF EXISTS "+database.Quote(v.QueueSchema, v.QueueFailed))
	}
	return list
}

// readers returns the statements that give another table the SELECT grants of a table.
func readers(ctx context.Context, tx pgx.Tx, table, to string) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT format('GRANT SELECT ON %s TO %s', $2::text, CASE a.grantee WHEN 0 THEN 'PUBLIC'
		ELSE a.grantee::regrole::text END) FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
		WHERE c.oid = to_regclass($1) AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner ORDER BY 1`, table, to)
	if err != nil {
		return nil, fmt.Errorf("look up grants on %s: %w", table, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// guards returns what restricts the readers of a store or of its view: the options of the view, which its replacement
// would lose, and whether the store has row-level security.
func guards(ctx context.Context, tx pgx.Tx, store, view string) (options string, hides bool, err error) {
	err = tx.QueryRow(ctx, `SELECT coalesce((SELECT ' WITH (' || array_to_string(c.reloptions, ', ') || ')'
			FROM pg_class AS c WHERE c.oid = to_regclass($2)), ''),
		EXISTS (SELECT FROM pg_class AS c WHERE c.oid = to_regclass($1) AND c.relrowsecurity)`, store, view).
		Scan(&options, &hides)
	return options, hides, wrap.Errorf(err, "look at %s and %s", store, view)
}

func equal(a string, as []string, b string, bs []string) string {
	parts := make([]string, len(as))
	for i := range as {
		parts[i] = a + "." + database.Quote(as[i]) + " = " + b + "." + database.Quote(bs[i])
	}
	return strings.Join(parts, " AND ")
}

func columnsOf(alias string, names []string) string {
	parts := lists.Map(names, func(name string) string { return alias + "." + database.Quote(name) })
	return strings.Join(parts, ", ")
}

// array encodes texts as a JSON array.
func array(texts []string) string {
	text, _ := json.Marshal(texts) // texts cannot fail
	return string(text)
}

// placeholders matches those of Python's string.Template.
var placeholders = regexp.MustCompile(`\$(?:(\$)|([_a-zA-Z][_a-zA-Z0-9]*)|\{([_a-zA-Z][_a-zA-Z0-9]*)\})`)

// template converts a template to SQL: the parts before and after $chunk.
func template(t string, types map[string]string) (before, after []string, problem string) {
	if t == "" {
		return nil, nil, ""
	}
	at, chunks := 0, 0
	parts := &before
	add := func(s string) {
		if s == "" {
			return
		}
		if n := len(*parts); n > 0 {
			if last, ok := literal((*parts)[n-1]); ok {
				(*parts)[n-1] = database.Literal(last + s)
				return
			}
		}
		*parts = append(*parts, database.Literal(s))
	}
	for _, m := range placeholders.FindAllStringSubmatchIndex(t, -1) {
		add(t[at:m[0]])
		at = m[1]
		if m[2] >= 0 {
			add("$")
			continue
		}
		name := t[max(m[4], m[6]):max(m[5], m[7])]
		switch typ := types[name]; {
		case name == "chunk":
			chunks++
			parts = &after
		case typ == "":
			return nil, nil, "its template names " + name + ", which is no column"
		case !slices.Contains([]string{
			"text", "character varying", "integer", "bigint", "smallint", "uuid", "name",
		}, typ):
			return nil, nil, "its template has column " + name + " of type " + typ + ", which Python writes in its own way"
		default: // Python prints NULL as None
			*parts = append(*parts, "coalesce("+database.Quote(name)+"::text, 'None')")
		}
	}
	add(t[at:])
	if chunks != 1 {
		return nil, nil, fmt.Sprintf("its template has $chunk %d times: %s", chunks, t)
	}
	return before, after, ""
}

func literal(sql string) (string, bool) {
	if !strings.HasPrefix(sql, "'") && !strings.HasPrefix(sql, " E'") && !strings.HasPrefix(sql, "E'") {
		return "", false
	}
	inner := sql[strings.IndexByte(sql, '\'')+1 : len(sql)-1]
	inner = strings.ReplaceAll(inner, "''", "'")
	if !strings.HasPrefix(sql, "'") {
		inner = strings.ReplaceAll(inner, `\\`, `\`)
	}
	return inner, true
}

// used reports whether something outside of the schema ai depends on it: a trigger, a view, a default or a column.
const used = `SELECT EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
	JOIN pg_class AS c ON c.oid = t.tgrelid
	WHERE p.pronamespace = n.oid AND c.relnamespace <> n.oid)
	OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
		JOIN pg_class AS v ON v.oid = r.ev_class WHERE v.relnamespace <> n.oid
		AND (d.refclassid = 'pg_class'::regclass AND d.refobjid IN (SELECT oid FROM pg_class WHERE relnamespace = n.oid)
			OR d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = n.oid)))
	OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
		JOIN pg_class AS c ON c.oid = f.adrelid WHERE c.relnamespace <> n.oid AND d.refclassid = 'pg_proc'::regclass
		AND d.refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = n.oid))
	OR EXISTS (SELECT FROM pg_attribute AS a JOIN pg_type AS y ON y.oid = a.atttypid
		JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE y.typnamespace = n.oid AND c.relnamespace <> n.oid)
	OR EXISTS (SELECT FROM pg_extension WHERE extname = 'ai')
	FROM pg_namespace AS n WHERE n.nspname = 'ai'`

// LeavePgai drops the schema ai if it has no vectorizer left and nothing else depends on it. Otherwise it returns what
// the user may run.
func LeavePgai(ctx context.Context, db database.Beginner) (left []string, err error) {
	err = database.Transact(ctx, db, func(tx pgx.Tx) error {
		left = []string{}
		var vectorizers int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM ai.vectorizer").Scan(&vectorizers); err != nil {
			return fmt.Errorf("read ai.vectorizer: %w", err)
		}
		var needed bool
		if err := tx.QueryRow(ctx, used).Scan(&needed); err != nil {
			return fmt.Errorf("look for what needs pgai: %w", err)
		}
		if ok, err := there(ctx, tx, "ai.semantic_catalog"); err != nil {
			return err
		} else if ok && !needed {
			if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM ai.semantic_catalog)").Scan(&needed); err != nil {
				return fmt.Errorf("read ai.semantic_catalog: %w", err)
			}
		}
		if vectorizers > 0 || needed {
			left = []string{"DROP SCHEMA ai CASCADE; (or DROP EXTENSION ai; something still uses it)"}
			return nil
		}
		_, err = tx.Exec(ctx, "DROP SCHEMA ai CASCADE")
		return wrap.Errorf(err, "remove the schema of pgai")
	})
	if database.Denied(err) {
		return []string{"DROP SCHEMA ai CASCADE; (as its owner)"}, nil
	}
	return left, err
}
