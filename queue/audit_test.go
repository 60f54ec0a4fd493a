package queue_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_NobodyMovesTheBoundOfTheAudit: an operator may take as many numbers of entries as he likes, in portions
// that are rolled back, and may act as often as he likes: what others did stays.
func TestTrust_NobodyMovesTheBoundOfTheAudit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.db.RunRole()
	_, role := f.db.SQLRoles()
	operator, other := newPerson(t, f.db, role), `another`
	f.db.MustExec(`INSERT INTO embedsidecar.audit_log (role_name, action) VALUES ($1, 'pause')`, other)
	// what a hundred thousand portions that are rolled back leave
	f.db.MustExecSuper(`SELECT setval('embedsidecar.audit_log_audit_id_seq', 1000000)`)
	operator.sees(`SELECT embedsidecar.pause()`, "paused")
	f.db.MustExec(`INSERT INTO embedsidecar.audit_log (role_name, action) SELECT $1, 'resume' FROM generate_series(1, 100010)`, role)
	f.db.MustExec(`INSERT INTO embedsidecar.audit_log (role_name, action, acted_at) VALUES ($1, 'old', now() - interval '401 days')`, other)
	run := newPerson(t, f.db, worker)
	run.sees(`SELECT count(*) FROM (SELECT embedsidecar.prune_audit()) AS p`, "1")
	operator.refused(`SELECT embedsidecar.prune_audit()`, "42501")
	operator.refused(`SELECT embedsidecar.tell_audit()`, "42501")
	if n := testenv.Value[int](f.db, `SELECT count(*) FROM embedsidecar.audit_log WHERE role_name = $1`, role); n != 100_000 {
		t.Errorf("%d entries of the operator's are left, want 100,000", n)
	}
	if got := testenv.Values[string](f.db, `SELECT action FROM embedsidecar.audit_log WHERE role_name = $1`, other); len(got) != 1 || got[0] != "pause" {
		t.Errorf("of another one's entries %v are left, want the pause, which is not old", got)
	}
}

// TestP9_AnEntryOfTheAuditIsSmall: an operator gives arguments and keys as long as he likes. What is kept of them, and
// what a sidecar reads of entries at once, is bounded.
func TestP9_AnEntryOfTheAuditIsSmall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := f.db.RunRole()
	_, role := f.db.SQLRoles()
	operator := newPerson(t, f.db, role)
	for _, argument := range []string{"class => repeat('x', 5000)", "code => repeat('x', 5000)", "class => repeat('x', 5000), dry_run => true"} {
		operator.refused(`SELECT embedsidecar.retry_failed(`+argument+`)`, "54000")
	}
	operator.sees(`SELECT count(*) FROM (SELECT embedsidecar.retry_failed(keys => ARRAY[repeat('k', 1000000), 'short'])) AS r`, "1")
	if n := testenv.Value[int](f.db, `SELECT max(octet_length(arguments::text)) FROM embedsidecar.audit_log`); n > 5000 {
		t.Errorf("an entry has %d bytes", n)
	}
	if n := testenv.Value[int](f.db, `SELECT length(arguments ->> 'keys_sha256') FROM embedsidecar.audit_log`); n != 64 {
		t.Errorf("a key that is not kept whole has no hash: %d", n)
	}
	f.db.MustExec(`INSERT INTO embedsidecar.audit_log (role_name, action, arguments)
		SELECT $1, 'retry', jsonb_build_object('class', repeat('x', 4000)) FROM generate_series(1, 900)`, role)
	run := newPerson(t, f.db, worker)
	run.sees(`SELECT sum(octet_length(arguments)) BETWEEN 1000000 AND 1100000 FROM embedsidecar.tell_audit()`, "t")
}
