package main

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// searchCommand finds the rows nearest to a text, or to a row.
type searchCommand struct {
	request  search.Request
	explain  bool
	key      string // of a row, to find similar ones
	where    cli.StringSlice
	distance string // largest distance of a row
	columns  cli.StringSlice
}

func newSearch() *command {
	c := &searchCommand{request: search.Request{Rows: 10}}
	return &command{
		name: "search", group: groupSearch, usage: "find the rows of a pipeline that are nearest to a text, or to a row",
		arguments: "PIPELINE[,PIPELINE...] [TEXT]", minArgs: 1, maxArgs: 2,
		description: "Embeds the text with the pipeline's own model. With --hybrid, rows are also ranked by full text " +
			"search, and both rankings are joined by reciprocal rank fusion. Results of several pipelines are " +
			"joined in the same way. With --like in place of TEXT it finds the rows most similar to that one, and embeds " +
			"nothing; a key is written as search prints it: the values of its columns, joined by | if there are several. " +
			"For trying a search; applications search by SQL or HTTP.",
		flags: []cli.Flag{
			own.number("limit,k", &c.request.Rows, "`N` most rows to find"),
			own.number("offset", &c.request.Offset, "`N` rows to skip, for further pages"),
			own.list("filter", &c.where, "`COLUMN=VALUE|JSON` only rows that match; repeat for more conditions. JSON has lists and ranges: "+
				`{"price": {"$gte": 10, "$lt": 20}}; operators are $eq, $ne, $in, $nin, $gt, $gte, $lt, $lte`),
			own.text("max-distance", &c.distance, "`X` leave out rows whose vectors are farther away", "any"),
			own.toggle("fresh-only", &c.request.FreshOnly, "leave out rows that wait to be embedded again"),
			own.number("rerank", &c.request.Rerank, "`N` number of candidates that the configured reranker puts in order"),
			own.list("return", &c.columns, "`COLUMN,...` columns to print beside the key"),
			own.text("like", &c.key, "`KEY` key of the row to find similar rows for"),
			own.toggle("hybrid", &c.request.Hybrid, "by vector and by full text search"),
			own.toggle("highlight", &c.request.Highlight, "print passages of the texts with the words of TEXT marked"),
			own.text("language", &c.request.Language, "`NAME` text search configuration of --hybrid and --highlight", "the database's own"),
			own.toggle("explain", &c.explain, "print the statement and its plan instead"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

// check validates the flags before anything is queried.
func (c *searchCommand) check(env *environment) (r search.Request, err error) {
	r = c.request
	if r.Rows < 1 || r.Rows > search.MaxRows {
		return r, misuse("-k: expected a number from 1 to %d, not %d", search.MaxRows, r.Rows)
	}
	if (c.key == "") != (len(env.args) == 2) {
		return r, misuse("search for a TEXT, or with --like for what is similar to a row")
	}
	if c.key != "" && (r.Hybrid || c.explain || r.Highlight) {
		return r, misuse("--like finds rows by their vectors alone, and goes without --hybrid, --highlight and --explain")
	}
	if r.Rerank != 0 && (c.key != "" || c.explain) {
		return r, misuse("--rerank goes with a TEXT, and without --explain, which shows how candidates are found")
	}
	if r.Language != "" && !r.Hybrid && !r.Highlight {
		return r, misuse("--language says how --hybrid and --highlight read words, and goes with one of them")
	}
	for _, list := range c.columns.Value() {
		for name := range strings.SplitSeq(list, ",") {
			r.Columns = append(r.Columns, strings.TrimSpace(name))
		}
	}
	if c.distance != "" {
		most, err := strconv.ParseFloat(c.distance, 64)
		if err != nil {
			return r, misuse("--max-distance: expected a number, not %q", c.distance)
		}
		r.MaxDistance = &most
	}
	if err := r.Check(); err != nil {
		return r, misuse("%v", err)
	}
	r.Filter, err = filterFlags(c.where.Value())
	return r, err
}

// filterFlags parses conditions of the form COLUMN=VALUE or JSON.
func filterFlags(conditions []string) (search.Filters, error) {
	filter := search.Filters{}
	for _, condition := range conditions {
		if strings.HasPrefix(strings.TrimSpace(condition), "{") {
			more, err := search.ParseFilter(condition)
			if err != nil {
				return nil, misuse("--%v", err)
			}
			for column, f := range more {
				if _, twice := filter[column]; twice {
					return nil, misuse("--filter: column %q is given twice: put its operators into one object", column)
				}
				filter[column] = f
			}
			continue
		}
		column, value, ok := strings.Cut(condition, "=")
		if !ok || column == "" {
			return nil, misuse("--filter: expected COLUMN=VALUE or a JSON object, not %q", condition)
		}
		values := filter[column].Texts()
		if f, twice := filter[column]; twice && !reflect.DeepEqual(f, search.Filter{{Values: values}}) {
			return nil, misuse("--filter: column %q is given twice: put its operators into one object", column)
		}
		filter[column] = search.Filter{{Values: append(values, value)}}
	}
	return filter, nil
}

// run searches as a reader of our tables. A plain role is refused by Searchable, and then searches by the SQL functions
// (bySQL).
func (c *searchCommand) run(ctx context.Context, env *environment) (err error) {
	request, err := c.check(env)
	if err != nil {
		return err
	}
	look := c.similar
	if c.key == "" {
		if request.Text = env.args[1]; strings.TrimSpace(request.Text) == "" {
			return misuse("the text to search for is empty")
		}
		look = c.near
	}
	// again if the model is switched meanwhile
	_, err = query.Settled(ctx, func(bool) (struct{}, error) { return struct{}{}, look(ctx, env, request) })
	if _, refused := errors.AsType[*refusal.PermissionError](err); refused || database.Denied(err) {
		return c.bySQL(ctx, env, request, err)
	}
	return err
}

// bySQL searches with the SQL functions for applications, for roles that may not read the tables.
func (c *searchCommand) bySQL(ctx context.Context, env *environment, request search.Request, refused error) error {
	if c.key != "" || c.explain || request.Hybrid {
		return problem.New(problem.Permission, refused, append(problem.Hints(refused), "a member of embedsidecar_searcher searches "+
			"without --like, --hybrid and --explain: the first is embedsidecar.neighbours in SQL, and all three are there for "+
			"the owner of the tables and, but for --explain, over HTTP")...)
	}
	return env.connected(ctx, func(pool *pgxpool.Pool) error {
		names := []string{env.args[0]}
		hits, err := query.BySQL(ctx, pool, names, request)
		if database.HasCode(err, pgerrcode.UndefinedObject) && strings.Contains(names[0], ",") {
			names = lists.Map(strings.Split(names[0], ","), strings.TrimSpace)
			hits, err = query.BySQL(ctx, pool, names, request)
		}
		if err != nil {
			return err
		}
		if len(names) > 1 {
			return env.showHits(nil, hits, &request)
		}
		return env.showHits(&pipeline.Pipeline{}, hits, &request)
	})
}

// near embeds the text and shows the nearest rows.
func (c *searchCommand) near(ctx context.Context, env *environment, request search.Request) (err error) {
	pool, pipelines, err := c.pipelines(ctx, env)
	if err != nil {
		return err
	}
	defer pool.Close()
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	if c.explain && len(pipelines) > 1 {
		return misuse("--explain shows the statement of one pipeline")
	}
	ask := c.embedder(env, pool, plugins)
	if c.explain {
		return c.explained(ctx, env, pool, ask, pipelines[0], request)
	}
	searcher := search.Searcher{
		DB: pool, Limit: env.config.Queries.SearchTimeout, Embed: ask, Score: query.Scorer(pool, plugins, env.config),
	}
	found, err := searcher.Search(ctx, pipelines, request)
	if err != nil {
		return query.Classified(err)
	}
	env.tellCoverage(ctx, pool, pipelines...)
	if len(pipelines) > 1 {
		return env.showHits(nil, found.Hits, &request)
	}
	return env.showHits(pipelines[0], found.Hits, &request)
}

// tellCoverage reports pipelines that are only partly embedded. It is silent if the role may not find out, or if that
// takes too long.
func (e *environment) tellCoverage(ctx context.Context, pool *pgxpool.Pool, pipelines ...*pipeline.Pipeline) {
	if !e.out.ForPeople() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, p := range pipelines {
		st, err := report.Options{Only: p.ID, AtOnce: true}.Read(ctx, pool)
		if err != nil || len(st.Pipelines) == 0 {
			continue
		}
		if among := st.Pipelines[0].Among(); among != "" {
			e.say("%s: %s", p.Name, among)
		}
	}
}

// embedder asks a running sidecar for vectors, and otherwise loads the pipeline's model here.
func (*searchCommand) embedder(env *environment, pool *pgxpool.Pool, plugins *embedders.Pool) search.Embedder {
	return func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error) {
		vector, err := query.Asked(ctx, pool, p, text)
		if err == nil {
			return vector, nil
		}
		env.log.DebugContext(ctx, "no sidecar answers, so the model is loaded here", "error", err.Error())
		return query.Embedder(plugins)(ctx, p, text)
	}
}

// explained shows the statement and its plan.
func (c *searchCommand) explained(ctx context.Context, env *environment, pool *pgxpool.Pool, ask search.Embedder,
	p *pipeline.Pipeline, request search.Request,
) (err error) {
	if request.Vector, err = ask(ctx, p, request.Text); err != nil {
		return err
	}
	e, err := search.Within(ctx, env.config.Queries.SearchTimeout, func(ctx context.Context) (search.Explanation, error) {
		return search.Explain(ctx, pool, p, request)
	})
	if err != nil {
		return query.Classified(search.About(p, err))
	}
	if !env.out.ForPeople() {
		return output.One(env.out, e, []string{"statement", "index"}, e.Statement, e.Index)
	}
	if err := env.printf("%s;\n\n%s\n", e.Statement, strings.Join(e.Plan, "\n")); err != nil || e.Index == "" {
		return err
	}
	return env.printf("\n-- the index that the words can use:\n%s;\n", e.Index)
}

func (c *searchCommand) similar(ctx context.Context, env *environment, r search.Request) error {
	pool, pipelines, err := c.pipelines(ctx, env)
	if err != nil {
		return err
	}
	defer pool.Close()
	if len(pipelines) > 1 {
		return misuse("--like finds rows of one pipeline")
	}
	p := pipelines[0]
	hits, err := search.Within(ctx, env.config.Queries.SearchTimeout, func(ctx context.Context) ([]search.Hit, error) {
		return query.Similar(ctx, pool, p, c.key, r)
	})
	if err != nil {
		return err
	}
	env.tellCoverage(ctx, pool, p)
	return env.showHits(p, hits, &r)
}

// pipelines connects and finds the pipelines that the first argument names. The caller closes the pool.
func (*searchCommand) pipelines(ctx context.Context, env *environment) (*pgxpool.Pool, []*pipeline.Pipeline, error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := query.Searchable(ctx, pool, env.args[0])
	found := []*pipeline.Pipeline{p}
	if names := strings.Split(env.args[0], ","); err != nil && len(names) > 1 { // none has a comma in its name
		found, err = nil, nil
		for _, name := range names {
			if p, err = query.Searchable(ctx, pool, strings.TrimSpace(name)); err != nil {
				break
			}
			found = append(found, p)
		}
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, found, nil
}

// showHits shows the results of a search in a pipeline; nil: in several.
func (e *environment) showHits(p *pipeline.Pipeline, hits []search.Hit, r *search.Request) error {
	if len(hits) == 0 && e.out.ForPeople() {
		e.say("no row was found; embedsidecar status shows how many rows have a vector")
	}
	return e.out.Show(hits, func() output.Table {
		columns := []string{"key"}
		if p == nil {
			columns = []string{"pipeline", "key"}
		}
		if r.Rerank > 0 {
			columns = append(columns, ">rerank")
		}
		if r.Hybrid || p == nil {
			columns = append(columns, ">score")
		}
		columns = append(append(append(columns, ">distance"), r.Columns...), "text")
		digits := 4
		if p != nil && p.Stored == pipeline.StoredBit {
			digits = 0
		}
		number := func(x *float64, digits int) string {
			if x == nil {
				return "-"
			}
			return strconv.FormatFloat(*x, 'f', digits, 64)
		}
		return output.Rows(hits, columns, func(h *search.Hit) []any {
			row := []any{h.Key}
			if p == nil {
				row = []any{h.Pipeline, h.Key}
			}
			if h.Rerank != nil {
				score := float64(*h.Rerank)
				row = append(row, number(&score, 4))
			}
			if r.Hybrid || p == nil {
				row = append(row, number(h.Score, 4))
			}
			row = append(row, number(h.Distance, digits))
			for _, name := range r.Columns {
				row = append(row, h.Value(name))
			}
			return append(row, h.Line())
		})
	})
}

type embedCommand struct {
	kind string
}

func newEmbed() *command {
	c := &embedCommand{kind: "document"}
	return &command{
		name: "embed", group: groupSearch, usage: "print the vectors of texts", arguments: "TEXT...", minArgs: 1, maxArgs: -1,
		description: "Prints one vector per line, as pgvector writes them. The argument - reads more texts from standard " +
			"input, one per line. A text without anything to embed has no vector: its line is empty. For queries " +
			"of your own, and for trying a model.",
		flags: []cli.Flag{
			own.text("kind", &c.kind, "`KIND` document or query: what the text is to the model"),
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *embedCommand) run(ctx context.Context, env *environment) error {
	kind := embed.Document
	switch c.kind {
	case "document":
	case "query":
		kind = embed.Query
	default:
		return misuse("--kind: expected document or query, not %q", c.kind)
	}
	texts, err := query.Texts(env.args, env.stdin)
	if err != nil {
		return err
	}
	vectors, err := query.Embed(ctx, env.embedders(), kind, texts)
	if vectors == nil {
		return err
	}
	err = errors.Join(vectors.Failed, err)
	for _, remark := range vectors.Remarks {
		env.say("%s", remark)
	}
	if env.out.ForPeople() {
		var b strings.Builder
		for i := range vectors.Embeddings {
			b.WriteString(vectors.Embeddings[i].Text + "\n")
		}
		return errors.Join(env.printf("%s", b.String()), err)
	}
	env.out.Compact = true
	columns := []string{"index", "tokens", "truncated", "empty", "error", "vector"}
	return errors.Join(output.Each(env.out, vectors, vectors.Embeddings, columns, func(v *query.Embedding) []any {
		return []any{v.Index, v.Tokens, v.Truncated, v.Empty, v.Error, v.Text}
	}), err)
}
