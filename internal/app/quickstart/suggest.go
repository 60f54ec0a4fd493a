package quickstart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// table is a table whose rows may be worth embedding.
type table struct {
	OID          uint32
	Schema, Name string
	Columns      []string // text columns; once sampled, only those with sentences
	Left         []string // the other text columns
	Rows         int64    // counted for a small table, estimated for a large one
	Keyed        bool     // it has a replica identity
	Unreadable   bool     // it has columns of text, and the role may read none of them

	bytes float64 // of text per row
}

// text returns about how many bytes of text the table has.
func (t *table) text() float64 { return t.bytes * float64(t.Rows) }

// line describes the table and its columns to the user.
func (t *table) line() string {
	without := ""
	if len(t.Left) > 0 {
		without = "not " + strings.Join(t.Left, ", ") + "; "
	}
	return fmt.Sprintf("%s: %s (%s%s)", database.Quote(t.Schema, t.Name), strings.Join(t.Columns, ", "), without,
		wording.Count(t.Rows, "row"))
}

// Limits of what is read for a suggestion. The length of a text is known without reading it.
const (
	sampledTables = 20
	sampledRows   = 200
	sampledRunes  = 500    // of each text
	countedRows   = 20_000 // of larger tables only some pages are read
	drawnRows     = 2_000  // about so many rows are wanted from these pages
	drawnPages    = 1_000  // at most so many pages are read
)

// suggest finds the tables with text, those with the most first. unsafe are the reasons why other tables are not safe
// to read. A name limits it to this table.
func suggest(ctx context.Context, db database.Beginner, name string) (found []table, unsafe []error, err error) {
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		args := pgx.StrictNamedArgs{"named": nil}
		if name != "" {
			t, err := named(ctx, tx, name)
			if err != nil {
				return err
			}
			args["named"] = t.OID
		}
		all, err := database.Collect(ctx, tx, "text_tables", pgx.RowToStructByNameLax[table], args)
		if err != nil {
			return fmt.Errorf("look for tables with text: %w", err)
		}
		found, unsafe, err = sampled(ctx, tx, all)
		return err
	})
	return found, unsafe, err
}

// named finds a table by its name, and refuses one that no pipeline can read.
func named(ctx context.Context, tx pgx.Tx, name string) (*catalog.Table, error) {
	schema, table, err := config.ParseTable(name)
	if err != nil {
		return nil, err
	}
	t, err := catalog.TableByName(ctx, tx, schema, table)
	if err != nil {
		return nil, err
	}
	if err := t.Embeddable(); err != nil {
		return nil, err
	}
	return t, t.Named()
}

// sampled reads a few rows of each table, and keeps the tables with text. If none is left, the error says why.
func sampled(ctx context.Context, tx pgx.Tx, all []table) (found []table, unsafe []error, err error) {
	var empty, silent []string
	var near *table // the first that lacks only a key, or else only a right
	for _, t := range all[:min(len(all), sampledTables)] {
		name := database.Quote(t.Schema, t.Name)
		if len(t.Columns) == 0 {
			silent = append(silent, name)
			if near == nil && t.Unreadable {
				near = &t
			}
			continue
		}
		if err := t.trusted(ctx, tx); err != nil {
			if _, refused := errors.AsType[*refusal.ConfigError](err); !refused {
				return nil, nil, err
			}
			unsafe = append(unsafe, err)
			continue
		}
		rows, err := sample(ctx, tx, &t)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("read some rows of %s: %w", name, err)
		case rows == 0:
			empty = append(empty, name)
		case len(t.Columns) == 0:
			silent = append(silent, name)
		case !t.Keyed:
			if near == nil || near.Unreadable {
				near = &t
			}
		default:
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b table) int {
		if a.text() > b.text() {
			return -1
		}
		return 1
	})
	switch {
	case len(found) > 0:
		return found, unsafe, nil
	case len(unsafe) > 0:
		return nil, nil, errors.Join(eachOwner(unsafe)...)
	}
	if near != nil {
		return nil, nil, nearly(ctx, tx, near)
	}
	return nil, nil, nothing(empty, silent)
}

// eachOwner keeps one error per hint, which is the same for all tables of an owner.
func eachOwner(unsafe []error) (list []error) {
	for _, err := range unsafe {
		hints := problem.Hints(err)
		if !slices.ContainsFunc(list, func(other error) bool { return slices.Equal(problem.Hints(other), hints) }) {
			list = append(list, err)
		}
	}
	return list
}

// trusted returns *ConfigError if reading the table may run code of an untrusted role. It drops the columns whose types
// belong to such a role. It reads only the catalog.
func (t *table) trusted(ctx context.Context, tx pgx.Tx) error {
	full, err := catalog.TableByOID(ctx, tx, t.OID)
	if err != nil {
		return err
	}
	if err := full.Unruly(ctx, tx); err != nil {
		return err
	}
	foreign, err := full.StrangersTypes(ctx, tx, nil)
	t.Columns = slices.DeleteFunc(t.Columns, func(column string) bool { return slices.Contains(foreign, column) })
	return err
}

// nearError is the error of a table that lacks only a key or a right.
type nearError struct {
	error

	table      catalog.Table
	unreadable bool // false: it has no key
}

func (e *nearError) Unwrap() error { return e.error }

func nearly(ctx context.Context, tx pgx.Tx, t *table) error {
	full, err := catalog.TableByOID(ctx, tx, t.OID)
	if err != nil {
		return err
	}
	e := refusal.Coded(code.Key, "no primary key: "+full.Quoted()+", which has text in it", full.AddKey())
	if t.Unreadable {
		e = refusal.Coded(code.NoText, "no column with sentences in it that this role may read: "+full.Quoted())
	}
	return &nearError{e, *full, t.Unreadable}
}

// nothing is the error of a database without a table to suggest.
func nothing(empty, silent []string) error {
	const way = "name what to embed, if there is something: embedsidecar quickstart URL --table public.docs --columns title,body --into-table docs_embedding"
	switch {
	case len(empty) > 0:
		return refusal.Coded(code.NoText, "no rows yet: "+some(empty)+"; a search would find nothing",
			"insert some rows first; or keep their vectors from the first one on with embedsidecar run", way)
	case len(silent) > 0:
		return refusal.Coded(code.NoText, "no column with sentences in it that this role may read: "+some(silent), way)
	}
	return refusal.Coded(code.NoText, "this database has no table of its own that this role may read",
		"is it the right one? list them: SELECT datname FROM pg_database;", way)
}

// some lists the first names, and counts the others.
func some(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}

// sample reads some rows from all over a table, and keeps the columns that hold sentences.
func sample(ctx context.Context, tx pgx.Tx, t *table) (rows int, err error) {
	share, err := t.count(ctx, tx)
	if err != nil {
		return 0, err
	}
	values := make([]column, len(t.Columns))
	rows, err = t.read(ctx, tx, share, values)
	if rows == 0 && share < whole && err == nil { // no page was drawn, or none with rows
		rows, err = t.read(ctx, tx, whole, values)
	}
	if err != nil || rows == 0 {
		return rows, err
	}
	var kept []string
	for i := range values {
		if values[i].sentences() {
			kept = append(kept, t.Columns[i])
			t.bytes += float64(values[i].bytes) / float64(rows)
		} else {
			t.Left = append(t.Left, t.Columns[i])
		}
	}
	t.Columns = kept
	return rows, nil
}

// whole is the share of a complete table, in percent.
const whole = 100

// count counts the rows of a small table, and estimates those of a larger one from some of its pages: the server's
// statistics may be outdated. It returns the share of the pages that has enough rows for a sample, in percent.
func (t *table) count(ctx context.Context, tx pgx.Tx) (share float64, err error) {
	name := database.Quote(t.Schema, t.Name)
	var counted int64
	err = tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+name+" LIMIT $1) AS r", countedRows).Scan(&counted)
	if t.Rows = max(t.Rows, counted); err != nil || counted < countedRows {
		t.Rows = counted
		return whole, err
	}
	drawn, share, err := estimate.Drawn(ctx, tx, name, t.OID)
	if err != nil || drawn == 0 {
		return whole, err
	}
	t.Rows = max(counted, drawn)
	return min(share, max(whole*float64(drawnRows)/float64(t.Rows), share/drawnPages)), nil
}

// read reads some rows of a share of the table, in percent.
func (t *table) read(ctx context.Context, tx pgx.Tx, share float64, values []column) (rows int, err error) {
	names, texts, sizes := make([]string, len(values)), make([]string, len(values)), make([]string, len(values))
	for i, c := range t.Columns {
		names[i] = "t." + database.Quote(c)
		texts[i] = fmt.Sprintf("left(r.%s::text, %d)", database.Quote(c), sampledRunes)
		sizes[i] = "octet_length(r." + database.Quote(c) + "::text)"
	}
	part := ""
	if share < whole {
		part = fmt.Sprintf(" TABLESAMPLE SYSTEM (%g)", share)
	}
	// Large values are read from TOAST only for the rows that are kept.
	read, err := tx.Query(ctx, "SELECT ARRAY["+strings.Join(texts, ", ")+"], ARRAY["+strings.Join(sizes, ", ")+"]"+
		" FROM (SELECT "+strings.Join(names, ", ")+" FROM "+database.Quote(t.Schema, t.Name)+" AS t"+part+
		" ORDER BY random() LIMIT $1) AS r", sampledRows)
	if err != nil {
		return 0, err
	}
	defer read.Close()
	for read.Next() {
		var found []*string
		var bytes []*int64
		if err := read.Scan(&found, &bytes); err != nil {
			return 0, err
		}
		rows++
		for i, text := range found {
			if text != nil {
				values[i].add(*text, *bytes[i])
			}
		}
	}
	return rows, read.Err()
}

// column summarizes some values of a column.
type column struct {
	filled, wordy int
	bytes         int64
	different     map[string]bool
}

// add adds the beginning of a text. bytes is the length of the text.
func (c *column) add(text string, bytes int64) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if c.different == nil {
		c.different = map[string]bool{}
	}
	c.filled++
	c.bytes += bytes
	c.different[text] = true
	if words(text) {
		c.wordy++
	}
}

// sentences reports whether at least half of the values have more than one word, and the values are not a few repeated
// ones, as in a category.
func (c *column) sentences() bool {
	const half, many, again = 2, 50, 10
	return c.filled > 0 && half*c.wordy >= c.filled && (c.filled < many || again*len(c.different) > c.filled)
}

// words reports whether a text has more than one word, or uses a script without spaces between words.
func words(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
			unicode.Khmer, unicode.Myanmar)
	})
}

// specOf returns the pipeline that embeds a table into an embedding table beside it.
func specOf(t *table) (pipeline.Spec, error) {
	table := database.Quote(t.Schema, t.Name)
	into, err := config.EmbeddingTable(table)
	var spec pipeline.Spec
	if err == nil {
		columns := lists.Map(t.Columns, func(c string) string { return database.Quote(c) })
		spec, err = config.Shortcut(table, columns, "", into)
	}
	if err != nil {
		return spec, errors.Join(errors.New("suggest a pipeline"), err)
	}
	return spec, nil
}

// faster suggests a static model for a first try, if there is one and an encoder would embed; "": nothing.
func faster(plugin string, found []models.Info) string {
	m := manifest.Of(plugin)
	at := slices.IndexFunc(found, func(i models.Info) bool { return i.Static && i.Problem == "" })
	if m == nil || m.Model.Kind != manifest.Folder || len(m.Model.Encoders) > 0 || at < 0 {
		return ""
	}
	return fmt.Sprintf("faster: --model %s, a static model: hundreds of times as many texts a second, but it finds less; "+
		"embedsidecar model change goes to a better one later",
		health.Quoted(found[at].Name))
}
