//go:build linux

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// ranked is a row of several pipelines.
type ranked struct{ Pipeline, Key, Highlight string }

// fused joins rankings as reciprocal rank fusion is defined: a score for each place, summed for a row of one table.
func fused(tables map[string]string, order []string, rankings map[string][]string) (joined []ranked) {
	scores := map[[2]string]float64{}
	for _, name := range order {
		for place, key := range rankings[name] {
			row := [2]string{tables[name], key}
			if scores[row] == 0 {
				joined = append(joined, ranked{Pipeline: name, Key: key})
			}
			scores[row] += 1 / float64(60+place+1)
		}
	}
	slices.SortStableFunc(joined, func(a, b ranked) int {
		return cmp.Compare(scores[[2]string{tables[b.Pipeline], b.Key}], scores[[2]string{tables[a.Pipeline], a.Key}])
	})
	return joined
}

// TestSearch_SeveralPipelinesByEveryDoor: pipelines with different models, two of them of one table, are searched at
// once by SQL, HTTP and the command line; all find what rank fusion of the single searches says, on every page. Whoever
// may not search one of them gets nothing.
func TestSearch_SeveralPipelinesByEveryDoor(t *testing.T) { //nolint:funlen // each door finds the same
	t.Parallel()
	const rows, k, question = 30, 7, "small <b>boat</b> 7"
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, title text, body text)`)
		db.MustExec(fmt.Sprintf(`CREATE TABLE cards (id int PRIMARY KEY, body text, embedding vector(%d))`, dims))
		db.MustExec(`INSERT INTO notes SELECT i, 'title ' || i, 'a boat & <i>' || i || '</i>'
			FROM generate_series(1, $1) AS i`, rows)
		db.MustExec(`INSERT INTO cards SELECT i, 'card ' || i FROM generate_series(1, $1) AS i`, rows)
		r := newRig(t, db,
			pipeline.Spec{
				Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"}, IntoTable: "notes_embedding",
			},
			pipeline.Spec{
				Name: "titles", Schema: "public", Table: "notes", Columns: []string{"title"}, IntoTable: "titles_embedding",
				Plugin: "fake-dims12",
			},
			pipeline.Spec{Name: "cards", Schema: "public", Table: "cards", Columns: []string{"body"}, IntoColumn: "embedding"})
		r.leisurely()
		c := r.start(nil, "run", "--no-init", "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
		url := c.address()
		r.caughtUp()

		names := []string{"titles", "notes", "cards"}
		tables := map[string]string{"notes": "notes", "titles": "notes", "cards": "cards"}
		all := map[string][]string{}
		for _, name := range names {
			all[name] = r.nearest(url, name, question, rows)
		}
		want := fused(tables, names, all)
		for _, offset := range []int{0, k} {
			page := want[offset : offset+k]
			same := func(door string, got []ranked) {
				t.Helper()
				if !slices.EqualFunc(got, page, func(a, b ranked) bool { return a.Pipeline == b.Pipeline && a.Key == b.Key }) {
					t.Errorf("%s, after %d: %v, want %v", door, offset, got, page)
				}
			}
			status, body := query(t, url+"/v1/search", token,
				map[string]any{
					"pipelines": append(names, "cards"), "text": question, "limit": k, "offset": offset, "highlight": true,
				})
			var answer struct{ Rows []ranked }
			if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			same("HTTP", answer.Rows)
			for _, row := range answer.Rows {
				if row.Pipeline == "notes" && row.Highlight != "a <mark>boat</mark> &amp;  "+row.Key {
					t.Errorf("highlighted: %q", row.Highlight)
				}
			}
			said := r.do(0, "search", "--offset", fmt.Sprint(offset), "-k", fmt.Sprint(k), "-o", "json", "titles,notes,cards",
				question)
			var hits []ranked
			if err := json.Unmarshal([]byte(said[strings.IndexByte(said, '['):]), &hits); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			same("command line", hits)
		}

		// By SQL, with the rights of the role that asks.
		role := db.SearcherRole()
		conn, err := pgx.Connect(t.Context(), r.login(role))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		for _, table := range []string{"notes", "notes_embedding", "titles_embedding"} {
			db.MustExec(`GRANT SELECT ON ` + table + ` TO ` + role)
		}
		if major < 17 {
			for _, name := range names {
				if _, err := conn.Exec(t.Context(), `CALL embedsidecar.ask($1, $2, '1 min')`, name, question); err != nil {
					t.Fatal(err)
				}
			}
		}
		find := func(offset int) (found []ranked, err error) {
			rows, err := conn.Query(t.Context(), `SELECT pipeline, row_key, embedsidecar.highlight('<i>"a boat"</i> &lt; 7', $2)
				FROM embedsidecar.search_across($1, $2, $3, '1 min', "offset" => $4)`, names, question, k, offset)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowToStructByPos[ranked])
		}
		if _, err := find(0); err == nil || !strings.Contains(err.Error(), `lacks privileges to search pipeline "cards"`) {
			t.Errorf("a pipeline that may not be read: %v", err)
		}
		db.MustExec(`GRANT SELECT ON cards TO ` + role)
		for _, offset := range []int{0, k} {
			got, err := find(offset)
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range got {
				if w := want[offset+i]; len(got) != k || row.Pipeline != w.Pipeline || row.Key != w.Key {
					t.Errorf("SQL, after %d, row %d: %v, want %v", offset, i, row, w)
				}
				if safe := `<mark>boat</mark>&#34;  &amp;lt; <mark>7</mark>`; strings.TrimSpace(row.Highlight) != safe {
					t.Errorf("highlighted by SQL: %q", row.Highlight)
				}
			}
		}
		for _, wrong := range []string{
			`'{}'::text[], 'x'`, `NULL::text[], 'x'`, `'{notes,nonesuch}'::text[], 'x'`, `'{notes,NULL}'::text[], 'x'`,
			`'{notes,cards}'::text[], 'x', 1000, "offset" => 1`, `'{notes,cards}'::text[], 'x', filter => '{"title": "x"}'`,
		} {
			if _, err := conn.Exec(t.Context(), `SELECT * FROM embedsidecar.search_across(`+wrong+`)`); err == nil {
				t.Errorf("search_across(%s) is answered", wrong)
			}
		}
		for _, wrong := range []map[string]any{
			{"text": "x"},
			{"pipelines": []string{}, "text": "x"},
			{"pipelines": names, "text": "x", "k": 1000, "offset": 1},
			{"pipelines": []string{"notes", "nonesuch"}, "text": "x"},
			{"pipelines": names, "text": " "},
			{"pipelines": names, "text": "x", "filter": map[string]any{"title": "x"}},
			{"pipelines": slices.Repeat(names, 6), "text": "x"},
		} {
			status, body := query(t, url+"/v1/search", token, wrong)
			if status != http.StatusBadRequest && status != http.StatusNotFound {
				t.Errorf("%v: %d %s", wrong, status, body)
			}
		}
		r.do(2, "search", "notes,cards", "x", "--explain")
		r.do(2, "search", "notes,cards", "--like", "1")
		c.terminate()
	})
}
