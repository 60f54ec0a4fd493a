package estimate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// words is an embedder whose tokens are words, plus two per text.
type words struct {
	texts  int
	silent bool // it cannot count tokens
}

func (w *words) Describe(context.Context) (embed.Description, error) { return about, nil }

func (w *words) Embed(_ context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	w.texts += len(texts)
	return make([]embed.Result, len(texts)), nil
}

func (w *words) Tokenize(_ context.Context, texts []string) (embed.Tokens, error) {
	if w.silent {
		return embed.Tokens{}, embed.ErrNoTokens
	}
	found := embed.Tokens{Around: 2}
	for _, text := range texts {
		found.Ends = append(found.Ends, make([]int, len(strings.Fields(text))))
	}
	return found, nil
}

var about = embed.Description{Model: "words", Fingerprint: "words", Dims: 100, MaxTokens: 12}

// If all rows are equal, the estimate must be exact. It reads a sample, and embeds nothing that has a price.
func TestMake(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, shown boolean);
		INSERT INTO docs SELECT i, repeat('word ', 8), true FROM generate_series(1, 2000) AS i;
		CREATE TABLE long (id bigint PRIMARY KEY, body text);
		INSERT INTO long SELECT i, repeat('word ', 10000) FROM generate_series(1, 20) AS i;
		CREATE TABLE few (id bigint PRIMARY KEY, body text);
		INSERT INTO few VALUES (1, 'a b'), (2, ' '), (3, NULL), (4, 'c d');
		CREATE TABLE none (id bigint PRIMARY KEY, body text);
		CREATE TABLE parts (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (50); CREATE TABLE parts_2 PARTITION OF parts DEFAULT;
		INSERT INTO parts SELECT i, 'one' FROM generate_series(1, 100) AS i`)
	of := func(table string) pipeline.Spec {
		return pipeline.Spec{
			Name: table, Schema: "public", Table: table, Columns: []string{"body"}, IntoTable: "e", Enabled: true,
		}
	}
	chunked := of("long")
	chunked.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
	hidden := of("docs")
	hidden.Filter = "NOT shown"
	pool, err := pgxpool.New(t.Context(), db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, test := range map[string]struct {
		spec   pipeline.Spec
		price  float64
		silent bool

		rows, texts, tokens int64
	}{
		"counted":      {spec: of("docs"), rows: 2000, texts: 2000, tokens: 2000 * 10},
		"paid":         {spec: of("docs"), price: 50, rows: 2000, texts: 2000, tokens: 2000 * 10},
		"guessed":      {spec: of("docs"), silent: true, rows: 2000, texts: 2000, tokens: 2000 * 11},
		"filtered":     {spec: hidden, rows: 2000},
		"empty texts":  {spec: of("few"), rows: 4, texts: 2, tokens: 2 * 4},
		"empty table":  {spec: of("none")},
		"partitioned":  {spec: of("parts"), rows: 100, texts: 100, tokens: 100 * 3},
		"cut, unpaid":  {spec: of("long"), rows: 20, texts: 20, tokens: 20 * 12},
		"whole chunks": {spec: chunked, rows: 20, texts: 20, tokens: 20 * 10002},
	} {
		by := &words{silent: test.silent}
		got, err := estimate.Make(t.Context(), estimate.Options{
			DB: pool, Spec: test.spec, About: about, By: by,
			Price: pipeline.Price{Million: test.price, Currency: "EUR"},
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Rows != test.rows || got.Texts != test.texts || got.Tokens != test.tokens || got.TokensGuessed != test.silent {
			t.Errorf("%s: %+v, want %+v", name, got, test)
		}
		if cut := map[string]int64{"cut, unpaid": 20}[name]; got.Cut != cut || got.MaxTokens != about.MaxTokens {
			t.Errorf("%s: %d texts cut at %d tokens, want %d", name, got.Cut, got.MaxTokens, cut)
		}
		if (test.price > 0) != (by.texts == 0 && test.texts > 0) && test.texts > 0 || by.texts > 17 {
			t.Errorf("%s: %d texts were embedded", name, by.texts)
		}
		if test.price > 0 && (got.Price == nil || *got.Price != 1 || got.Seconds != nil ||
			!strings.Contains(got.Line(), "price 1.00 EUR")) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if testenv.Value[bool](db, "SELECT to_regclass('e') IS NOT NULL") {
		t.Error("something was made")
	}
}

// TestP10_TheSampleIsOfTheWholeTable: the newer rows of a table are often unlike the older ones.
func TestP10_TheSampleIsOfTheWholeTable(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	pool, err := pgxpool.New(t.Context(), db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for table, rows := range map[string]int{"small": 5_000, "large": 120_000} { // drawn row by row, and by pages
		db.MustExec(fmt.Sprintf(`CREATE TABLE %s (id bigint PRIMARY KEY, body text);
			INSERT INTO %[1]s SELECT i, repeat('word ', CASE WHEN i <= %d THEN 1 ELSE 9 END) FROM generate_series(1, %d) AS i`,
			table, rows/2, rows))
		made, err := estimate.Make(t.Context(), estimate.Options{DB: pool, About: about, By: &words{}, Spec: pipeline.Spec{
			Name: table, Schema: "public", Table: table, Columns: []string{"body"}, IntoTable: "e", Enabled: true,
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := int64(rows) * (3 + 11) / 2
		if made.Tokens < want*6/10 || made.Tokens > want*14/10 {
			t.Errorf("%s: %d tokens, want about %d", table, made.Tokens, want)
		}
	}
}

// A newly loaded table has no statistics: some of its pages are counted.
func TestMake_ATableThatWasJustLoaded(t *testing.T) {
	t.Parallel()
	const rows = 150_000
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE loaded (id bigint PRIMARY KEY, body text) WITH (autovacuum_enabled = false);
		INSERT INTO loaded SELECT i, repeat('word ', 60) FROM generate_series(1, 150000) AS i`)
	pool, err := pgxpool.New(t.Context(), db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	made, err := estimate.Make(t.Context(), estimate.Options{DB: pool, About: about, By: &words{}, Spec: pipeline.Spec{
		Name: "loaded", Schema: "public", Table: "loaded", Columns: []string{"body"}, IntoTable: "e", Enabled: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Rows < rows*8/10 || made.Rows > rows*12/10 {
		t.Errorf("%d rows of %d", made.Rows, rows)
	}
	if made.Seconds == nil || *made.Seconds < 10 {
		t.Errorf("nothing is reckoned for writing them: %v", made.Line())
	}
}
