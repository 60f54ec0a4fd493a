package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// Chunked returns shapes whose texts are cut into chunks, one with each strategy. Their tokens are those of the fake
// embedder.
func Chunked(dims int) []Shape {
	number := func(r *rand.Rand, rows int) []string { return []string{strconv.Itoa(r.IntN(rows))} }
	return usual([]Shape{
		{
			Name: "markdowns", Key: []Column{{"tenant", "integer"}, {"email", "citext"}},
			Columns: []string{"title", "body"}, Text: "body",
			IntoTable: "markdowns_chunk", requires: "citext",
			Chunking: pipeline.Chunking{Strategy: pipeline.ChunkMarkdown, Tokens: 32, Overlap: 4, Context: "title"},
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{strconv.Itoa(r.IntN(2)), fmt.Sprintf("User%d@Example.org", r.IntN(rows))}
			},
			respell: func(key []string) []string {
				if lower := strings.ToLower(key[1]); lower != key[1] {
					return []string{key[0], lower}
				}
				return []string{key[0], strings.ToUpper(key[1])}
			},
		},
		{
			Name: "sentences", Columns: []string{"title", "body"},
			IntoTable: "sentences_chunk", Long: true,
			Chunking: pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 24, NoText: true}, newKey: number,
		},
		{
			Name: "tokens", Columns: []string{"title", "body"},
			Text:   "coalesce(title, '') || coalesce(body, '')",
			Filter: "published", Flag: "published", IntoTable: "tokens_chunk", Stored: pipeline.StoredHalfvec,
			Chunking: pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16, Overlap: 3}, newKey: number,
		},
	}, dims)
}

// article makes a text of several paragraphs, with some markup.
func article(r *rand.Rand) string {
	var parts []string
	for range 1 + r.IntN(8) {
		switch r.IntN(8) {
		case 0:
			parts = append(parts, strings.Repeat("#", 1+r.IntN(3))+" "+words[r.IntN(len(words))])
		case 1:
			parts = append(parts, "```\n"+strings.Repeat(words[r.IntN(len(words))]+" = 1\n", 1+r.IntN(30))+"```")
		case 2:
			parts = append(parts, "- "+words[r.IntN(len(words))]+"\n- "+hostile[r.IntN(len(hostile))]+"\n  - "+sentence(r))
		default:
			sentences := make([]string, 1+r.IntN(6))
			for i := range sentences {
				sentences[i] = sentence(r)
			}
			parts = append(parts, strings.Join(sentences, ". "))
		}
	}
	return strings.Join(parts, "\n\n")
}

// rearrange edits a text of paragraphs like an author: it moves, changes, removes, repeats or adds one.
func rearrange(ctx context.Context, s *step) error {
	if !s.shape.Chunking.On() {
		return change(ctx, s)
	}
	return s.onRow(ctx, func(p *params, _ []string) string {
		split := `string_to_array(body, E'\n\n')`
		at := 1 + s.r.IntN(4)
		var body string
		switch s.r.IntN(4) {
		case 0: // the first paragraphs go to the end
			body = fmt.Sprintf(`array_to_string((%s)[%d:] || (%s)[:%d], E'\n\n')`, split, at+1, split, at)
		case 1: // some are there twice
			body = fmt.Sprintf(`left(array_to_string((%s)[:%d] || %s, E'\n\n'), 20000)`, split, at, split)
		case 2: // the first go
			body = fmt.Sprintf(`array_to_string((%s)[%d:], E'\n\n')`, split, at)
		default: // a new one somewhere
			body = fmt.Sprintf(`array_to_string((%s)[:%d] || %s || (%s)[%d:], E'\n\n')`, split, at, p.add(sentence(s.r), "text"),
				split, at+1)
		}
		return "UPDATE {table} SET body = " + body
	})
}

// storedChunk is a row of a chunked embedding table. Key is that of its source row, nil without one.
type storedChunk struct {
	Key, Own       *string
	No, Start, End int
	Context        string
	Text           *string
	Vector         []float32
}

// compareChunks cuts the text of every row again and compares it with the stored chunks.
func (r *Report) compareChunks(ctx context.Context, tx pgx.Tx, s Shape, embed Embed) error {
	sources, _ := tx.Query(ctx, s.chunkSourcesSQL())
	type row struct {
		Key, Text, Title *string
		Wanted           bool
	}
	rows, err := pgx.CollectRows(sources, pgx.RowToStructByPos[row])
	if err != nil {
		return err
	}
	lines, err := tx.Query(ctx, s.chunksSQL())
	if err != nil {
		return err
	}
	stored := map[string][]storedChunk{}
	all, err := pgx.CollectRows(lines, func(line pgx.CollectableRow) (c storedChunk, err error) {
		err = line.Scan(&c.Key, &c.Own, &c.No, &c.Start, &c.End, &c.Context, &c.Text, &c.Vector)
		return c, err
	})
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Key == nil {
			r.Orphans = append(r.Orphans, Finding{s.Name, *c.Own, fmt.Sprintf("there is no such row (chunk %d)", c.No)})
			continue
		}
		stored[*c.Key] = append(stored[*c.Key], c)
	}
	for _, row := range rows {
		var text, title string
		if row.Wanted && row.Text != nil {
			text = *row.Text
		}
		if row.Title != nil {
			title = *row.Title
		}
		r.judgeChunks(s, *row.Key, text, title, stored[*row.Key], embed)
	}
	return nil
}

func (r *Report) judgeChunks(s Shape, key, text, title string, stored []storedChunk, embed Embed) {
	r.Rows++
	settings := s.Chunking.Settings()
	no := 0
	note := func(list *[]Finding, format string, args ...any) {
		*list = append(*list, Finding{s.Name, key, fmt.Sprintf("chunk %d: ", no) + fmt.Sprintf(format, args...)})
	}
	for _, c := range chunk.Cut(settings, chunk.Text{Text: text, Ends: vector.TokenEnds(text)},
		chunk.Text{Text: title, Ends: vector.TokenEnds(title)}) {
		want, empty := embed(c.Embedded(text))
		if empty {
			continue
		}
		if no >= len(stored) {
			note(&r.Missing, "the text has %d bytes and %d chunks are stored", len(text), len(stored))
			return
		}
		got := stored[no]
		own := c.Of(text)
		switch {
		case got.No != no || got.Start != c.Start || got.End != c.End || got.Context != c.Context:
			note(&r.Stale, "it is chunk %d, bytes %d to %d, context %q; want %d to %d, %q", got.No, got.Start, got.End,
				got.Context, c.Start, c.End, c.Context)
		case s.Chunking.NoText && got.Text != nil || !s.Chunking.NoText && (got.Text == nil || *got.Text != own):
			note(&r.Stale, "another text is stored than the %d bytes of the chunk", len(own))
		case !near(s.Stored, got.Vector, want):
			note(&r.Stale, "it begins with %v, want %v", got.Vector[:min(3, len(got.Vector))], want[:min(3, len(want))])
		default:
			r.Vectors++
		}
		no++
	}
	for ; no < len(stored); no++ {
		note(&r.Unwanted, "the text of %d bytes has no such chunk", len(text))
	}
}

func (s Shape) chunkSourcesSQL() string {
	text, wanted := s.textSQL()
	context := cmp.Or(s.Chunking.Context, "NULL")
	return fmt.Sprintf("SELECT %s, (%s)::text, (%s)::text, %s FROM %s", s.shownKey(""), text, context, wanted, s.Source())
}

func (s Shape) chunksSQL() string {
	on := s.eachKey(" AND ", func(name string) string { return fmt.Sprintf("s.%s = e.%s", name, name) })
	return fmt.Sprintf(`SELECT CASE WHEN s.%s IS NOT NULL THEN %s END, %s, e.chunk_no, coalesce(e.start_byte, -1),
		coalesce(e.end_byte, -1), coalesce(e.context, ''), e.chunk_text, %s
		FROM %s AS e LEFT JOIN %s AS s ON %s ORDER BY 1, e.chunk_no`,
		quote(s.Counter), s.shownKey("s."), s.shownKey("e."), s.numbers("e.embedding"), s.Into(), s.Source(), on)
}

// shownKey formats a key for messages.
func (s Shape) shownKey(alias string) string {
	return "concat_ws(' | ', " + s.eachKey(", ", func(name string) string { return alias + name + "::text" }) + ")"
}
