package queue_test

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestHistory_IsARingByTheServersClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bucket := func() int {
		return testenv.Value[int](f.db, "SELECT (div(floor(extract(epoch FROM clock_timestamp()))::numeric, 14400) % 8)::int")
	}
	before := bucket()
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	f.finish(t, f.lease(t, 1), queue.Done)
	got := testenv.Value[int](f.db, "SELECT bucket::int FROM embedsidecar.history")
	if got != before && got != bucket() {
		t.Errorf("the end of a task went to bucket %d, and it is time for %d", got, before)
	}

	f.db.MustExec(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
		SELECT i, $1, 'x', 'embedded', 1, now(), '0/1' FROM generate_series(0, 7) AS i`, f.id)
	before = bucket()
	if err := f.q.PruneHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	ahead := []int{(before + 1) % 8, (bucket() + 1) % 8} // they differ if the time for the next has come meanwhile
	empty := testenv.Values[int](f.db,
		"SELECT i FROM generate_series(0, 7) AS i WHERE NOT EXISTS (SELECT FROM embedsidecar.history AS h WHERE h.bucket = i)")
	if len(empty) != 1 || !slices.Contains(ahead, empty[0]) {
		t.Errorf("buckets %v are empty, want the one ahead, %v", empty, ahead)
	}
}

// P9: history takes no more room than it may, however much is done in a day: the oldest of it goes first.
func TestP9_HistoryIsBoundedBySize(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
		SELECT b, $1, repeat('x', 200) || i, 'embedded', 1, now(), '0/1' FROM generate_series(0, 7) AS b, generate_series(1, 1000) AS i`, f.id)
	size := func() int64 {
		return testenv.Value[int64](f.db, `SELECT sum(pg_total_relation_size(format('embedsidecar.history_%s', i)::regclass))::bigint
			FROM generate_series(0, 7) AS i WHERE pg_relation_size(format('embedsidecar.history_%s', i)::regclass) > 0`)
	}
	most := size() * 5 / 16 // two buckets and a half
	f.q = queue.New(f.db.Pool)
	f.q.SetMostHistory(most)
	now := testenv.Value[int](f.db, "SELECT (div(floor(extract(epoch FROM clock_timestamp()))::numeric, 14400) % 8)::int")
	if err := f.q.BoundHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := testenv.Values[int](f.db, "SELECT DISTINCT bucket::int FROM embedsidecar.history ORDER BY 1")
	if got := size(); got > most || len(left) != 2 || !slices.Contains(left, now) && !slices.Contains(left, (now+1)%8) {
		t.Errorf("%d bytes in buckets %v are left, want the newest two of %d at most, and it is time for %d", got, left, most, now)
	}
}
