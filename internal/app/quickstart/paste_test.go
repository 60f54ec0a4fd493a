package quickstart

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// TestProgram: special characters in names are escaped, a password is not shown, and an older server gets CALL first.
func TestProgram(t *testing.T) {
	t.Parallel()
	p := program{
		p: &pipeline.Pipeline{
			Spec: pipeline.Spec{Name: "kb.100%", Schema: "kb", Table: `100% "odd":name`, Columns: []string{"id", "a:b"}},
			Key:  []pipeline.KeyColumn{{Name: "id", Type: "bigint"}},
		},
		text: `it's "so"`, url: "postgres://u@h/d", flags: " --slot=s", program: "bin/embedsidecar",
	}
	has := func(what, text string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s lacks %s:\n%s", what, word, text)
			}
		}
	}
	has("SQL", p.sql(), `d."id", d."a:b"`, `embedsidecar.search('kb.100%', 'it''s "so"', 5)`,
		`ON d."id" = (s.key ->> 'id')::bigint`, "ORDER  BY s.distance;")
	has("psycopg", p.psycopg(), `psycopg.connect("postgres://u@h/d"`, `'kb.100%%', %s, 5)`, `"kb"."100%% ""odd"":name"`,
		`["it's \"so\""]`)
	has("SQLAlchemy", p.alchemy(), `'kb.100%', :text, 5)`, `a\\:b`, `::bigint`, `{"text": "it's \"so\""}`)
	has("Django", p.django(), `    rows.execute("""SELECT`, "for row in rows")
	has("curl", p.curl(), "bin/embedsidecar run --http 127.0.0.1:7470 --no-auth --slot=s &\n", "/v1/pipelines/kb.100%25/search",
		`'\''`)

	p.asks, p.hidden, p.listen = true, true, "127.0.0.1:1"
	has("SQL", p.sql(), "CALL embedsidecar.ask('kb.100%', 'it''s \"so\"');\nSELECT")
	has("psycopg", p.psycopg(), `os.environ["EMBEDSIDECAR_DATABASE_URL"]`, `db.execute("""CALL embedsidecar.ask('kb.100%%', %s)"""`)
	if text := p.curl(); strings.Contains(text, "embedsidecar run") || strings.Contains(p.psycopg(), "u@h") {
		t.Errorf("%s\n%s", text, p.psycopg())
	}
}
