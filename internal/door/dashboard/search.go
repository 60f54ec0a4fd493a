package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

type playground struct {
	admin.Found

	Pipelines            []string
	Pipeline, Text       string
	Also                 []string // other pipelines to search
	K                    int
	Hybrid               bool
	Ks                   []int
	Asked                bool
	MayText, Show, Ready bool
	MayRerank, Rerank    bool
	Trouble              *trouble
	Rows                 []hit
	Snippets             []snippet
}

const usualRows = 10

func (d *Dashboard) search(r *http.Request) (view, error) {
	ctx := r.Context()
	who, _ := gate.CallerOf(ctx)
	o := playground{
		Pipeline: r.FormValue("pipeline"), Also: r.Form["also"], Text: r.FormValue("q"), K: usualRows,
		Hybrid: r.FormValue("hybrid") == "1",
		Ks:     []int{5, usualRows, 25, 50}, MayText: who.RowText, Ready: d.o.Service.Searches(),
	}
	o.Show = o.MayText && r.FormValue("text") == "1"
	o.MayRerank = o.MayText && d.o.Service.Reranks()
	o.Rerank = o.MayRerank && r.FormValue("rerank") == "1"
	for _, k := range o.Ks {
		if r.FormValue("k") == strconv.Itoa(k) {
			o.K = k
		}
	}
	v := view{page: "search", title: "Search", data: &o}
	var err error
	if o.Pipelines, err = d.o.Service.Names(ctx); err != nil {
		return view{}, err
	}
	// A link does not start a search, because any page on this machine could hold one.
	if strings.TrimSpace(o.Text) == "" || !o.Ready || r.Method != http.MethodPost {
		return v, nil
	}
	if o.Pipeline == "" && len(o.Pipelines) > 0 {
		o.Pipeline = o.Pipelines[0]
	}
	if err = d.find(ctx, &o); err != nil { // shown beside the query, which stays
		p := d.o.Service.ProblemOf(ctx, err)
		o.Trouble, v.status = &trouble{p.Detail, p.Hints}, p.Status
		return v, nil
	}
	o.Asked, o.Snippets = true, snippets(o.names(), o.Text, o.K, o.Hybrid)
	return v, nil
}

// names returns the names of the pipelines to search.
func (o *playground) names() []string {
	return lists.Add([]string{o.Pipeline}, o.Also...)
}

// find searches. If texts are shown for one pipeline, the columns that they are made of are shown, too.
func (d *Dashboard) find(ctx context.Context, o *playground) (err error) {
	r := search.Request{Hybrid: o.Hybrid, Rows: o.K}
	if o.Rerank {
		r.Rerank = slices.Max(o.Ks) // as many candidates as the largest page has rows
	}
	if o.Show && len(o.Also) == 0 {
		p, err := d.o.Service.Defined(ctx, o.Pipeline)
		if err != nil {
			return err
		}
		if p != nil {
			r.Columns = p.Columns
		}
	}
	if o.Found, err = d.o.Service.Search(ctx, o.names(), o.Text, r, o.Show); err != nil {
		return err
	}
	words := wordsOf(o.Text)
	for i := range o.Hits {
		o.Hits[i].Pipeline = cmp.Or(o.Hits[i].Pipeline, o.Pipeline)
		h := hit{Hit: o.Hits[i], Words: marked(words, o.Hits[i].Text)}
		var values map[string]json.RawMessage
		_ = json.Unmarshal(h.Columns, &values) // the database has made it
		for _, name := range r.Columns {
			if value := valueOf(values[name]); value != "" {
				h.Shown = append(h.Shown, shownColumn{name, marked(words, value)})
			}
		}
		o.Rows = append(o.Rows, h)
	}
	return nil
}

// hit is a found row for the page.
type hit struct {
	search.Hit

	Words []piece // of its text
	Shown []shownColumn
}

// shownColumn is a column of a row with its value.
type shownColumn struct {
	Name  string
	Words []piece
}

// piece is a part of a text: a word of the query, or the text in between.
type piece struct {
	Text  string
	Asked bool
}

// valueOf formats the value of a column for display, shortened.
func valueOf(value json.RawMessage) string {
	const most = 300
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

// wordsOf matches the words of a query at the beginnings of words; nil: the query has none.
func wordsOf(question string) *regexp.Regexp {
	const least, most = 3, 20
	var words []string
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }
	for word := range strings.FieldsFuncSeq(question, between) {
		if len([]rune(word)) >= least && len(words) < most {
			words = append(words, regexp.QuoteMeta(word))
		}
	}
	if len(words) == 0 {
		return nil
	}
	return regexp.MustCompile(`(?i)(?:^|[^\pL\pN])((?:` + strings.Join(words, "|") + `)[\pL\pN]*)`)
}

// marked splits a text at the words of the query.
func marked(words *regexp.Regexp, text string) (list []piece) {
	if words == nil {
		return []piece{{Text: text}}
	}
	at := 0
	for _, m := range words.FindAllStringSubmatchIndex(text, -1) {
		list = append(list, piece{Text: text[at:m[2]]}, piece{text[m[2]:m[3]], true})
		at = m[3]
	}
	return append(list, piece{Text: text[at:]})
}

// snippet is an equivalent search from an application.
type snippet struct{ ID, Name, Code string }

// snippets returns a search in SQL, in Python and over HTTP.
func snippets(pipelines []string, text string, k int, hybrid bool) []snippet {
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	function, columns, path := "search", "row_key, distance", "pipelines/"+url.PathEscape(pipelines[0])+"/search"
	sql, python := quoted(pipelines[0]), strconv.Quote(pipelines[0])
	request := struct {
		Pipelines []string `json:"pipelines,omitempty"`
		Text      string   `json:"text"`
		K         int      `json:"k"`
		Hybrid    bool     `json:"hybrid,omitempty"`
	}{nil, text, k, hybrid}
	if len(pipelines) > 1 {
		function, columns, path, request.Pipelines = "search_across", "pipeline, row_key, score", "search", pipelines
		sql = "ARRAY[" + strings.Join(lists.Map(pipelines, quoted), ", ") + "]"
		python = "[" + strings.Join(lists.Map(pipelines, strconv.Quote), ", ") + "]"
	}
	var body strings.Builder
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(request) // strings and numbers cannot fail
	return []snippet{
		{"by-sql", "SQL", fmt.Sprintf("SELECT * FROM embedsidecar.%s(%s, %s, %d);", function, sql, quoted(text), k)},
		{"by-python", "Python", fmt.Sprintf(`import psycopg

with psycopg.connect("postgresql://app@localhost/mydb") as db:
    rows = db.execute(
        "SELECT %s FROM embedsidecar.%s(%%s, %%s, %%s)",
        (%s, %s, %d),
    ).fetchall()`, columns, function, python, strconv.Quote(text), k)},
		{"by-http", "HTTP", fmt.Sprintf(`curl -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d %s \
  http://127.0.0.1:7470/v1/%s`, health.Quoted(strings.TrimSpace(body.String())), path)},
	}
}
