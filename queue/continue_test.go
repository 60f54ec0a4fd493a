package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestSQL_AnActionGoesOnWithWhatItWasBegun: who goes on with an action names the same rows and the same person as when
// it began, or is refused; so its entry of the audit tells what was done.
func TestSQL_AnActionGoesOnWithWhatItWasBegun(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		f := newFixture(t, testenv.Major(major))
		f.db.RunRole()
		_, role := f.db.SQLRoles()
		operator := newPerson(t, f.db, role)
		f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
			committed_at, error_class, error_code)
			SELECT $1, i::text, 'failed', 1, '3', '0/1', '0/1', now() - interval '1 h', 'data', 'c' || i % 2
			FROM generate_series(1, 400) AS i`, f.id)
		f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
			SELECT $1, i::text, 1, '3', '0/1', '0/1', now() FROM generate_series(501, 520) AS i`, f.id)
		begun := func(call string) int64 {
			t.Helper()
			var entry int64
			if err := operator.conn.QueryRow(t.Context(), "SELECT audit_id FROM embedsidecar."+call).Scan(&entry); err != nil {
				t.Fatalf("%s: %v", call, err)
			}
			return entry
		}
		left := func() string {
			t.Helper()
			return strings.Join(testenv.Values[string](f.db, `SELECT concat_ws(' ', row_key, state, lane) FROM embedsidecar.task
				UNION ALL SELECT concat_ws(' ', audit_id, arguments, changed) FROM embedsidecar.audit_log ORDER BY 1`), "\n")
		}
		many := func(last int) string {
			return fmt.Sprintf("(SELECT array_agg(i::text ORDER BY i) || '{%d}'::text[] FROM generate_series(1, 150) AS i)",
				last)
		}
		retry := begun(`retry_failed('docs', code => 'c1', max_rows => 5)`)
		discard := begun(`discard_dead('docs', class => 'data', older_than => '10 min', max_rows => 5)`)
		cancel := begun(`cancel('docs', ` + many(399) + `, max_rows => 5)`)
		prioritise := begun(`prioritise('docs', 'high', max_rows => 1)`)
		requeue := begun(`requeue('docs', max_rows => 1, said_by => 'ann')`)
		before := left()
		for _, call := range []string{
			fmt.Sprintf(`retry_failed('docs', continues => %d)`, retry),
			fmt.Sprintf(`retry_failed('docs', code => 'c0', continues => %d)`, retry),
			fmt.Sprintf(`retry_failed('docs', code => 'c1', keys => '{1}', continues => %d)`, retry),
			fmt.Sprintf(`retry_failed('docs', code => 'c1', said_by => 'ann', continues => %d)`, retry),
			fmt.Sprintf(`retry_failed(code => 'c1', continues => %d)`, retry),
			fmt.Sprintf(`discard_dead('docs', class => 'data', older_than => '1 min', continues => %d)`, discard),
			fmt.Sprintf(`discard_dead('docs', class => 'data', continues => %d)`, retry),
			fmt.Sprintf(`cancel('docs', %s, continues => %d)`, many(400), cancel), // of which the audit shows as much
			fmt.Sprintf(`prioritise('docs', 'urgent', continues => %d)`, prioritise),
			fmt.Sprintf(`requeue('docs', continues => %d)`, requeue),
			fmt.Sprintf(`requeue('docs', said_by => 'bob', continues => %d)`, requeue),
			`requeue('docs', continues => 0)`, `requeue('docs', continues => -9223372036854775808)`,
		} {
			operator.refused("SELECT embedsidecar."+call, "22023", "repeat its other arguments")
		}
		if after := left(); after != before {
			t.Errorf("something was done:\n%s\nwas\n%s", after, before)
		}
		if _, err := operator.conn.Exec(t.Context(), `SET intervalstyle = 'iso_8601'`); err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{
			fmt.Sprintf(`retry_failed('docs', code => 'c1', max_rows => 3, continues => %d)`, retry),
			fmt.Sprintf(`discard_dead('docs', class => 'data', older_than => '600 s', max_rows => 3, continues => %d)`,
				discard),
			fmt.Sprintf(`cancel('docs', %s, max_rows => 3, continues => %d)`, many(399), cancel),
			fmt.Sprintf(`prioritise('docs', 'high', max_rows => 3, continues => %d)`, prioritise),
			fmt.Sprintf(`requeue('docs', said_by => 'ann', max_rows => 3, continues => %d)`, requeue),
		} {
			operator.sees("SELECT changed FROM embedsidecar."+call, "3")
		}
		operator.sees(`SELECT action || ' ' || changed FROM embedsidecar.audit ORDER BY audit_id`,
			"retry 8", "discard 8", "cancel 8", "prioritise 4", "requeue 4")
		operator.sees(`SHOW intervalstyle`, "iso_8601")
		operator.sees(`SELECT arguments ->> 'older_than' FROM embedsidecar.audit WHERE action = 'discard'`, "00:10:00")
	})
}
