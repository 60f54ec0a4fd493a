package sidecar_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestPriority_OfARowIsWhatItSays: beside rows that say nothing, or nothing that is a priority, and one of which it
// cannot be found out. A change of what only the priority reads embeds nothing, a hint counts for more, and an
// expression that takes long keeps no change from being queued.
func TestPriority_OfARowIsWhatItSays(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, severity text, naps float8 NOT NULL DEFAULT 0)`)
	spec := intoTable("docs", "body")
	spec.PriorityBy = `case severity when 'critical' then 'urgent' when 'trivial' then 'low' when 'broken'
		then (1 / (id - id))::text when 'slow' then (naps || coalesce(pg_sleep(naps)::text, '')) else severity end`
	r := newRig(t, db, spec)
	db.MustExec(`GRANT SELECT (severity, naps) ON docs TO ` + r.role)
	r.known()
	r.options = func(o *sidecar.Options) { o.Quick = waitTimeout } // however slow the machine is
	_, stop := r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	writer := &hints{t: t, conn: newWriter(t, db, true)}
	db.MustExec(`INSERT INTO docs VALUES (1, 'a', 'critical'), (2, 'a', 'trivial'), (3, 'a', 'high'), (4, 'a', 'soon'),
		(5, 'a', NULL), (6, 'a', 'broken'), (7, 'a', 'normal')`)
	writer.exec(`BEGIN; SELECT embedsidecar.hint('low'); INSERT INTO docs VALUES (8, 'a', 'critical'); COMMIT`)
	lanes := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Values[string](db, `SELECT row_key || ' ' || priority FROM embedsidecar.tasks ORDER BY 1`)
			return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
		})
	}
	lanes("1 urgent", "2 low", "3 high", "4 normal", "5 normal", "6 normal", "7 normal", "8 low")
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	sent := r.embedder.sent()
	db.MustExec(`UPDATE docs SET severity = 'critical' WHERE id <> 6`)
	r.counted()
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 || r.embedder.sent() != sent {
		t.Errorf("%d tasks, %d texts embedded, for columns that no text reads", n, r.embedder.sent()-sent)
	}
	stop()
	r.options = nil
	r.start()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	db.MustExec(`INSERT INTO docs VALUES (9, 'b', 'slow', 3600)`)
	lanes("9 normal")
	db.MustExec(`DELETE FROM docs WHERE id = 9`)
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	r.verify()
}

// TestPriority_WritesNothing: an expression that calls a trusted function which writes is refused by the server; its
// rows wait with the usual priority, and nothing is written.
func TestPriority_WritesNothing(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text); CREATE TABLE read_by (id bigint)`)
	db.MustExec(`CREATE FUNCTION note(bigint) RETURNS text LANGUAGE sql SECURITY DEFINER AS
		'INSERT INTO public.read_by VALUES ($1) RETURNING ''urgent'''`)
	db.MustExec(`CREATE FUNCTION noted(bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN public.note($1); END'`)
	spec := intoTable("docs", "body")
	spec.PriorityBy = `public.noted(id)`
	r := newRig(t, db, spec)
	r.known()
	r.options = func(o *sidecar.Options) { o.Quick = waitTimeout } // however slow the machine is
	r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'a'), (2, 'b')`)
	want := []string{"1 normal", "2 normal"}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Values[string](db, `SELECT row_key || ' ' || priority FROM embedsidecar.tasks ORDER BY 1`)
		return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	if n := r.count(`SELECT count(*) FROM read_by`); n != 0 {
		t.Errorf("the expression wrote %d rows", n)
	}
	r.verify()
}

// TestProperty_AWaitingRowIsAsUrgentAsItEverWas: over random histories of rows that come, change and go, each waits
// with the most urgent priority that it had when one of its changes was read. A change of only the priority is one.
func TestProperty_AWaitingRowIsAsUrgentAsItEverWas(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, severity text)`)
	spec := intoTable("docs", "body")
	spec.PriorityBy = `severity`
	r := newRig(t, db, spec)
	db.MustExec(`GRANT SELECT (severity) ON docs TO ` + r.role)
	r.known()
	r.options = func(o *sidecar.Options) { o.Quick = waitTimeout } // however slow the machine is
	r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	words := []string{"low", "normal", "high", "urgent"}
	history := 0
	rapid.Check(t, func(rt *rapid.T) {
		first := 10 * history
		history++
		now, waits := map[int]string{}, map[int]int{}
		for step := range rapid.IntRange(1, 4).Draw(rt, "steps") {
			var sql []string
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 1, 4, rapid.ID).Draw(rt, "rows") {
				id := first + i
				_, there := now[id]
				severity := rapid.SampledFrom(append([]string{"", "soon"}, words...)).Draw(rt, "severity")
				deed := rapid.SampledFrom([]string{"change", "change", "change", "change", "severity", "delete"}).Draw(rt, "deed")
				if !there {
					deed = "insert"
				}
				switch deed {
				case "insert":
					sql = append(sql, fmt.Sprintf("INSERT INTO docs VALUES (%d, '%d', nullif('%s', ''))", id, step, severity))
				case "change":
					sql = append(sql, fmt.Sprintf("UPDATE docs SET body = '%d', severity = nullif('%s', '') WHERE id = %d", step,
						severity, id))
				case "severity":
					sql = append(sql, fmt.Sprintf("UPDATE docs SET severity = nullif('%s', '') WHERE id = %d", severity, id))
				case "delete":
					sql = append(sql, fmt.Sprintf("DELETE FROM docs WHERE id = %d", id))
				}
				now[id] = severity
				if deed == "delete" {
					delete(now, id)
					severity = ""
				}
				lane := slices.Index(words, severity)
				if lane < 0 {
					lane = slices.Index(words, "normal")
				}
				if before, is := waits[id]; !is || lane > before {
					waits[id] = lane
				}
			}
			db.MustExec(strings.Join(sql, "; "))
			var want []string
			for _, id := range slices.Sorted(maps.Keys(waits)) {
				want = append(want, fmt.Sprint(id, " ", words[waits[id]]))
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				got := testenv.Values[string](db, `SELECT row_key || ' ' || priority FROM embedsidecar.tasks
					WHERE row_key::bigint >= $1 ORDER BY row_key::bigint`, first)
				return slices.Equal(got, want), fmt.Sprintf("%q, want %q after %q", got, want, sql)
			})
		}
	})
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	r.verify()
}
