package queue_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// hours gives the pipeline hours.
func (f *fixture) hours(t testing.TB, h pipeline.Hours) {
	t.Helper()
	f.db.MustExec(`UPDATE embedsidecar.pipeline SET active_hours = $1, active_minutes = $2::text::int4multirange, active_zone = $3`,
		h, h.Minutes(), h.Zone())
}

// Which hour it is says the server's clock, in the pipeline's time zone: compared with what the server prints.
func TestIsOpen_ByTheServersClockInTheZoneOfTheHours(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		f := newFixture(t, testenv.Major(major))
		for _, zone := range []string{"UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Kiritimati", "America/St_Johns"} {
			for _, windows := range []string{
				"00:00-24:00", "00:00-12:00", "12:00-24:00", "22:00-06:00", "06:00-22:00", "mon-wed 00:00-24:00",
				"thu-sun 00:00-24:00", "sun 12:00-12:00",
			} {
				h, err := pipeline.ParseHours(windows + " " + zone)
				if err != nil {
					continue // none of a whole day
				}
				f.hours(t, h)
				// In one statement, so that both speak of one moment.
				wrong := testenv.Values[string](f.db, `
					SELECT to_char(l.now, 'ID HH24:MI') FROM embedsidecar.pipeline AS p
					CROSS JOIN LATERAL (SELECT now() AT TIME ZONE p.active_zone AS now) AS l
					WHERE embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until) <> CASE $1
						WHEN '00:00-24:00' THEN true
						WHEN '00:00-12:00' THEN l.now::time < '12:00'
						WHEN '12:00-24:00' THEN l.now::time >= '12:00'
						WHEN '22:00-06:00' THEN l.now::time >= '22:00' OR l.now::time < '06:00'
						WHEN '06:00-22:00' THEN l.now::time >= '06:00' AND l.now::time < '22:00'
						WHEN 'mon-wed 00:00-24:00' THEN to_char(l.now, 'ID') < '4'
						WHEN 'thu-sun 00:00-24:00' THEN to_char(l.now, 'ID') >= '4' END`, windows)
				if len(wrong) > 0 {
					t.Errorf("at %s it is the wrong time for %s", wrong[0], h)
				}
			}
		}
		f.hours(t, pipeline.Manual)
		if testenv.Value[bool](f.db, `SELECT embedsidecar.is_open(active_minutes, active_zone, open_until) FROM embedsidecar.pipeline`) {
			t.Error("manual is open")
		}
	})
}

// Whatever is switched, closed and opened in whatever order: nothing is leased while the pipeline is paused or outside
// of its hours; changes are queued all the same; and when all is open again, all of them are there. TestLine_... in
// package sidecar has the same of what is worked at once.
func TestProperty_PauseAndHoursEmbedNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.q.SetLooks(0, 0)
	always, never := pipeline.Hours(""), pipeline.Manual
	exec := func(sql string) func() { return func() { f.db.MustExec(sql) } }
	rapid.Check(t, func(rt *rapid.T) {
		f.db.MustExec(`DELETE FROM embedsidecar.task`)
		f.db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true, open_until = NULL, active_minutes = NULL`)
		f.db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
		paused, off, closed, asked := false, false, false, false
		waiting := map[string]bool{}
		look := func() {
			may := !paused && !off && (!closed || asked)
			tasks := f.lease(t, 3)
			if len(tasks) > 0 && !may {
				rt.Fatalf("%d tasks leased (paused %t, off %t, closed %t, asked %t)", len(tasks), paused, off, closed, asked)
			}
			if may && len(tasks) == 0 && len(waiting) > 0 {
				rt.Fatalf("none of %d tasks leased", len(waiting))
			}
			if len(tasks) == 0 {
				return
			}
			f.finish(t, tasks, queue.Done)
			for _, task := range tasks {
				delete(waiting, task.RowKey)
			}
		}
		acts := map[string]func(){
			"change": func() {
				key := rapid.SampledFrom([]string{"one", "two", "three", "four"}).Draw(rt, "key")
				if _, err := f.enqueue(t.Context(), change(key, 10)); err != nil {
					rt.Fatal(err)
				}
				waiting[key] = true
			},
			"pause":  func() { exec(`SELECT embedsidecar.pause('docs')`)(); paused = true },
			"resume": func() { exec(`SELECT embedsidecar.resume('docs')`)(); paused = false },
			"off":    func() { exec(`SELECT embedsidecar.pause()`)(); off = true },
			"on":     func() { exec(`SELECT embedsidecar.resume()`)(); off = false },
			"close":  func() { f.hours(t, never); closed = true },
			"open":   func() { f.hours(t, always); closed = false },
			"ask":    func() { exec(`SELECT embedsidecar.resume('docs', '1 h')`)(); asked, paused = true, false },
			"end":    func() { exec(`SELECT embedsidecar.resume('docs', '0')`)(); asked = false },
		}
		names := make([]string, 0, len(acts))
		for name := range acts {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 8).Draw(rt, "acts") {
			acts[name]()
			look()
		}
		acts["resume"]()
		acts["on"]()
		acts["open"]()
		for len(waiting) > 0 {
			look()
		}
	})
}

// Lanes are told with their ages, and rows that wait change theirs by keys or all of them, in portions that are audited
// as one; they keep their order, and are leased from there at once.
func TestSQL_LanesAndPrioritise(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.q.SetLooks(0, 0)
	f.db.RunRole()
	readerRole, operatorRole := f.db.SQLRoles()
	reader, operator := newPerson(t, f.db, readerRole), newPerson(t, f.db, operatorRole)
	for i := range 9 {
		c := change(fmt.Sprint(i), 10)
		if i < 6 {
			c.Lane = pipeline.Low
		}
		if _, err := f.enqueue(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	f.db.MustExec(`UPDATE embedsidecar.task SET committed_at = now() - make_interval(days => row_key::integer)`)
	f.db.MustExec(`UPDATE embedsidecar.task SET state = 'retrying', due_at = now() + interval '1 h' WHERE row_key = '8'`)
	for _, p := range []*person{reader, operator} {
		p.sees(`SELECT pipeline, priority, state, rows, round(oldest_seconds / 86400), round(newest_seconds / 86400), round(average_ms / 3600000) FROM embedsidecar.lanes ORDER BY 2, 3`,
			"docs low todo 6 5 0 60", "docs normal retrying 1 8 8 192", "docs normal todo 2 7 6 156")
	}
	reader.refused(`SELECT embedsidecar.prioritise('docs', 'high')`, "42501")
	reader.refused(`SELECT embedsidecar.resume('docs', '1 h')`, "42501")
	operator.refused(`SELECT embedsidecar.prioritise('docs', 'soon')`, "22023", "urgent")
	operator.refused(`SELECT embedsidecar.prioritise('docs', 'high', '{NULL}')`, "22023", "without NULL")
	operator.refused(`SELECT embedsidecar.resume('docs', '367 days')`, "22023", "366 days")
	operator.refused(`SELECT embedsidecar.resume('docs', '-1 s')`, "22023", "366 days")
	operator.refused(`SELECT embedsidecar.resume('dosc', '1 h')`, "42704", "there are: docs")
	operator.sees(`SELECT changed, remaining, audit_id FROM embedsidecar.prioritise('docs', 'urgent', dry_run => true)`, "0 9 ")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.prioritise('docs', 'urgent', '{7,3,nobody}')`, "2 0")
	operator.sees(`SELECT changed, remaining, audit_id FROM embedsidecar.prioritise('docs', 'high', '{0,1,2,4,5,6,8}', max_rows => 3)`, "3 4 2")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.prioritise('docs', 'high', '{0,1,2,4,5,6,8}', max_rows => 100, continues => 2)`, "4 ")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.prioritise('docs', 'high', '{0,1,2,4,5,6,8}', continues => 2)`, "0 0")
	operator.sees(`SELECT action, result, changed, arguments - 'keys' FROM embedsidecar.audit ORDER BY audit_id`,
		`prioritise prioritised 2 {"priority": "urgent", "keys_given": 3}`, `prioritise prioritised 7 {"priority": "high", "keys_given": 7}`)
	operator.sees(`SELECT string_agg(row_key, ' ' ORDER BY row_key), priority, state FROM embedsidecar.tasks GROUP BY 2, 3 ORDER BY 2, 3`,
		"8 high retrying", "0 1 2 4 5 6 high todo", "3 7 urgent todo")
	var order []string
	for range 2 {
		for _, task := range f.lease(t, 10) {
			order = append(order, task.RowKey)
		}
	}
	if fmt.Sprint(order) != "[3 7 0 1 2 4 5 6]" {
		t.Errorf("leased in the order %v", order)
	}
	operator.sees(`SELECT embedsidecar.resume('docs', '2 h', dry_run => true), embedsidecar.resume('docs', '2 h', said_by => 'ann')`, "would_be_resumed resumed")
	operator.sees(`SELECT open_until > now() + interval '119 min', active_hours FROM embedsidecar.pipelines`, "t ")
	operator.sees(`SELECT embedsidecar.resume('docs', '0')`, "back_to_its_hours")
	f.hours(t, pipeline.Manual)
	for _, p := range []*person{reader, operator} {
		p.sees(`SELECT is_open, active_hours FROM embedsidecar.status`, "f manual")
		p.sees(`SELECT is_open, works FROM embedsidecar.status`, "f f")
		p.sees(`SELECT embedsidecar.wait_for(timeout => '1 min')`, "f")
	}
}
