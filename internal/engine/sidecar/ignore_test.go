package sidecar_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const blanksAndCase = `lower(btrim(regexp_replace(text, '\s+', ' ', 'g')))`

// edited is what is known of a row: its text, and the text that its vector is to be of.
type edited struct{ text, vector string }

// edits is a random history of edits that count and of such that do not.
type edits struct {
	r    *rig
	rand *rand.Rand
	rows map[int]edited
	n    int
}

// edit changes a row, and waits until an edit that counts is embedded: of edits before that only the last is seen. Each
// text is there once: whoever embeds it is found.
func (e *edits) edit() {
	id := e.rand.IntN(10)
	e.n++
	row, there := e.rows[id]
	counts := fmt.Sprintf("Text %d of the house", e.n)
	switch way := e.rand.IntN(10); {
	case !there:
		e.rows[id] = edited{counts, counts}
		e.r.db.MustExec(`INSERT INTO docs VALUES ($1, $2)`, id, counts)
		e.r.settle()
		return
	case way == 0:
		delete(e.rows, id)
		e.r.db.MustExec(`DELETE FROM docs WHERE id = $1`, id)
		return
	case way == 1:
		row = edited{" ", ""}
	case way < 4 || row.vector == "":
		row = edited{counts, counts}
	case way < 7:
		row.text = strings.ReplaceAll(strings.ToUpper(row.vector), " ", strings.Repeat(" ", 1+e.n))
	default:
		row.text = strings.Repeat("\n", e.n) + row.vector + "\t"
	}
	e.rows[id] = row
	e.r.db.MustExec(`UPDATE docs SET body = $2 WHERE id = $1`, id, row.text)
	if row.text == row.vector {
		e.r.settle()
	}
}

// check holds what was embedded, and what a verification says, against what is to be.
func (e *edits) check() {
	e.r.t.Helper()
	var covered, ignored int64
	for id, row := range e.rows {
		if row.vector != "" {
			covered++
		}
		if row.vector != "" && row.text != row.vector {
			ignored++
			if e.r.embedder.sent(row.text) > 0 {
				e.r.t.Fatalf("row %d: %q was embedded though it counts as %q", id, row.text, row.vector)
			}
		}
	}
	if found := e.r.reports()[0]; !found.OK() || found.Covered != covered || found.Ignored != ignored {
		e.r.t.Fatalf("%+v, want %d rows covered, %d of them by another text", found, covered, ignored)
	}
}

// ignoring runs a test with each form of a destination.
func ignoring(t *testing.T, test func(t *testing.T, spec pipeline.Spec)) {
	t.Helper()
	for name, spec := range map[string]pipeline.Spec{
		"column": column("docs", "body"), "table": intoTable("docs", "body"),
		"chunks": chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16, Context: "id::text"}),
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, spec) })
	}
}

// TestP8_AnEditThatDoesNotCountCostsNothing: over random histories of edits, gaps and comparisons of every row. Another
// rule costs the vectors of those rows alone whose text is not the one that was embedded, and says how many that are.
func TestP8_AnEditThatDoesNotCountCostsNothing(t *testing.T) {
	t.Parallel()
	ignoring(t, func(t *testing.T, spec pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		spec.Ignore = blanksAndCase
		r := newRig(t, db, spec)
		r.options = func(o *sidecar.Options) { o.NoDirect = false }
		_, stop := r.start()
		r.settle()
		e := &edits{r: r, rand: rand.New(rand.NewPCG(3, 4)), rows: map[int]edited{}}
		for step := range 120 {
			e.edit()
			switch step % 40 {
			case 20: // a gap: every row is compared
				r.settle()
				stop()
				db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET lsn = consistent_point`)
				_, stop = r.start()
			case 39:
				db.MustExec(`SELECT embedsidecar.backfill('docs')`)
				r.settle()
				e.check()
			}
		}
		stop()
		sent, texts := r.embedder.sent(), 0
		for id, row := range e.rows {
			if row.vector != "" && row.text != row.vector {
				texts++
			}
			if row.vector != "" {
				e.rows[id] = edited{row.text, row.text}
			}
		}
		spec.Ignore = ""
		warnings := strings.Join(r.init(spec).Warnings, " ")
		if want := fmt.Sprintf("last edit was ignored: %d.", texts); texts == 0 || !strings.Contains(warnings, want) {
			t.Errorf("warnings %q, want %q", warnings, want)
		}
		r.start()
		r.settle()
		if now := r.embedder.sent() - sent; spec.Chunking.Strategy == "" && now != texts || now < texts {
			t.Errorf("%d texts embedded for another rule, want %d", now, texts)
		}
		e.check()
	})
}

// TestIgnore_ARowWhoseRuleFailsIsAlone: it is a dead letter that says why, and the others are embedded.
func TestIgnore_ARowWhoseRuleFailsIsAlone(t *testing.T) {
	t.Parallel()
	ignoring(t, func(t *testing.T, spec pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		spec.Ignore = `lower(text) || 1 / (length(text) - 5)`
		r := newRig(t, db, spec)
		r.start()
		db.MustExec(`INSERT INTO docs SELECT i, repeat('x', i::int) FROM generate_series(1, 9) AS i`)
		r.settle()
		failed := testenv.Values[string](db, `SELECT row_key || ' ' || error_code || ' ' || error_message
			FROM embedsidecar.task`)
		if len(failed) != 1 || !strings.HasPrefix(failed[0], "5 unreadable") {
			t.Errorf("failed: %q", failed)
		}
		db.MustExec(`UPDATE docs SET body = upper(body)`)
		r.settle()
		if sent := slices.Sorted(maps.Keys(r.embedder.counts())); slices.Contains(sent, "XXX") || len(sent) != 8 {
			t.Errorf("embedded: %q", sent)
		}
	})
}
