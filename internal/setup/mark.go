package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// ourMark begins the comment on a destination that init made, so that it can be told from what was there before. The
// comment says whose vectors these are and what made them. It outlives the schema embedsidecar: by it an embedding
// table that uninstall has left is taken up again, and uninstall finds what an earlier one left.
const (
	ourMark   = "embedsidecar:"
	vectorsOf = ourMark + " vectors of "
)

// markOf is the comment on a destination for a source table and an embedder.
func markOf(source *table, fingerprint string) string {
	return vectorsOf + source.quoted() + " by " + fingerprint
}

// markIn returns a comment if init made it, or "".
func markIn(comment string) string {
	if strings.HasPrefix(comment, ourMark) {
		return comment
	}
	return ""
}

// comment returns the statement that marks a pipeline's destination.
func (in *initializer) comment(f *findings) string {
	what := "TABLE "
	if f.pipeline.ToColumn() {
		what = "COLUMN "
	}
	return "COMMENT ON " + what + destinationName(f.pipeline.Spec) + " IS " +
		database.Literal(markOf(f.table, in.o.Descriptions[f.pipeline.Name].Fingerprint))
}

// markAnew plans a new comment for a destination of ours that another embedder takes over.
func (in *initializer) markAnew(f *findings) (a action, needed bool) {
	now, want := f.destination.Mark, markOf(f.table, in.o.Descriptions[f.pipeline.Name].Fingerprint)
	if now == want || !strings.HasPrefix(now, markOf(f.table, "")) || !f.destination.Owned {
		return a, false
	}
	return action{
		Step:    Step{What: "comment on " + destinationName(f.pipeline.Spec), SQL: []string{in.comment(f)}},
		allowed: true,
	}, true
}

// takesUp reports whether a destination that holds vectors may be taken over without --overwrite: an embedding table
// that init made for this very source and embedder, and that an earlier set-up left. A column that was left may have
// been filled by somebody since.
func (in *initializer) takesUp(f *findings) bool {
	return !f.pipeline.ToColumn() && f.destination.Mark == markOf(f.table, in.o.Descriptions[f.pipeline.Name].Fingerprint)
}

// occupied is the error of a destination that holds vectors and is not taken up.
func (in *initializer) occupied(f *findings) error {
	name := destinationName(f.pipeline.Spec)
	e := &refusal.ConfigError{
		Pipeline: f.pipeline.Name, Problem: "the destination " + name + " holds vectors that this pipeline did not write",
		Hint: []string{"name another destination, or take it over with --overwrite: every vector in it is then made anew"},
	}
	source, fingerprint, ours := strings.Cut(strings.TrimPrefix(f.destination.Mark, vectorsOf), " by ")
	switch {
	case !ours:
	case f.pipeline.ToColumn() && source == f.table.quoted():
		e.Problem = "the destination " + name +
			" holds vectors that an earlier set-up left, unless somebody else has written there since"
	case source != f.table.quoted():
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, of the rows of %s", name,
			source)
	default:
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, made by another model (%s)",
			name, brief(fingerprint))
	}
	return e
}

// left is a destination that init made.
type left struct {
	Schema, Table, Column string // Column is "" for an embedding table
	OID                   uint32
	Only                  bool // not the columns that inherit from it
}

func (l left) name() string {
	if l.Column == "" {
		return database.Quote(l.Schema, l.Table)
	}
	return database.Quote(l.Schema, l.Table, l.Column)
}

// removal plans its end.
func (l left) removal() removal {
	if l.Column == "" {
		return removal{"DROP TABLE " + database.Quote(l.Schema, l.Table), []uint32{l.OID}}
	}
	alter := "ALTER TABLE "
	if l.Only {
		alter += "ONLY "
	}
	return removal{alter + database.Quote(l.Schema, l.Table) + " DROP COLUMN " + database.Quote(l.Column), []uint32{l.OID}}
}

// heirs counts those of the columns that inherit from this one.
func (l left) heirs(ctx context.Context, q database.Querier, columns []left) (n int, err error) {
	if l.Column == "" {
		return 0, nil
	}
	var tables []uint32
	for _, o := range columns {
		if o.Column == l.Column && o.OID != l.OID {
			tables = append(tables, o.OID)
		}
	}
	err = q.QueryRow(ctx, `WITH RECURSIVE below AS (SELECT $1::oid AS relid UNION SELECT h.inhrelid FROM below AS b
		JOIN pg_inherits AS h ON h.inhparent = b.relid)
		SELECT count(*)::int FROM below WHERE relid <> $1 AND relid = ANY ($2)`, l.OID, tables).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("look for columns that inherit from %s: %w", l.name(), err)
	}
	return n, nil
}

// spare keeps the end of a column from being that of the columns that inherit from it, where a pipeline writes to one
// of those.
func (l *left) spare(ctx context.Context, q database.Querier, stored []storedPipeline) error {
	n, err := l.heirs(ctx, q, columns(stored))
	l.Only = n > 0
	return err
}

// columns are the destinations of pipelines that are columns, whoever made them.
func columns(stored []storedPipeline) []left {
	var list []left
	for _, s := range stored {
		if s.DestinationColumn != "" {
			list = append(list, left{Column: s.DestinationColumn, OID: s.TableOID})
		}
	}
	return list
}

// markedDestinations returns the destinations that init made, whether or not a pipeline still writes to them. The
// comment on a column counts if it names the column's own table: CREATE TABLE ... (LIKE ... INCLUDING COMMENTS)
// copies it to tables that are not ours.
func markedDestinations(ctx context.Context, q database.Querier) ([]left, error) {
	rows, err := q.Query(ctx, `SELECT n.nspname::text, c.relname::text, coalesce(a.attname::text, ''), c.oid, d.description
		FROM pg_description AS d JOIN pg_class AS c ON c.oid = d.objoid JOIN pg_namespace AS n ON n.oid = c.relnamespace
		LEFT JOIN pg_attribute AS a ON d.objsubid > 0 AND a.attrelid = c.oid AND a.attnum = d.objsubid
		WHERE d.classoid = 'pg_class'::regclass AND c.relkind IN ('r', 'p') AND starts_with(d.description, $1) ORDER BY 1, 2,
		3`, vectorsOf)
	if err != nil {
		return nil, fmt.Errorf("look for destinations that init made: %w", err)
	}
	var (
		found   []left
		l       left
		comment string
	)
	_, err = pgx.ForEachRow(rows, []any{&l.Schema, &l.Table, &l.Column, &l.OID, &comment}, func() error {
		if l.Column == "" || strings.HasPrefix(comment, markOf(&table{Schema: l.Schema, Name: l.Table}, "")) {
			found = append(found, l)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for destinations that init made: %w", err)
	}
	return found, nil
}
