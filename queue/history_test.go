package queue_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// looks writes entries of history into the partition of now, as old as it is said.
func (f *fixture) looks(t *testing.T, n int, key string) {
	t.Helper()
	f.db.MustExec(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn, finished_at)
		SELECT (SELECT bucket FROM embedsidecar.history_turn), $1, $2 || i, 'embedded', 1, clock_timestamp(), '0/1',
			clock_timestamp() FROM generate_series(1, $3) AS i`, f.id, key, n)
}

// passes has so much time pass for history.
func (f *fixture) passes(d time.Duration) {
	f.db.MustExec(`UPDATE embedsidecar.history_turn SET began_at = began_at - $1::interval,
		ended_at = ARRAY(SELECT e - $1::interval FROM unnest(ended_at) WITH ORDINALITY AS u (e, n) ORDER BY n)`, d)
	f.db.MustExec("UPDATE embedsidecar.history SET finished_at = finished_at - $1::interval", d)
}

func (f *fixture) prune(t *testing.T, h queue.History) {
	t.Helper()
	if err := f.q.PruneHistory(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

const kept = "SELECT count(*)::int FROM embedsidecar.history"

// Nothing that is younger than it is to be kept is lost, and nothing stays much longer, however the time is set
// meanwhile.
func TestHistory_IsKeptForItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	f.finish(t, f.lease(t, 1), queue.Done)
	if !testenv.Value[bool](f.db, `SELECT count(*) = 1 AND bool_and(bucket = (SELECT bucket FROM embedsidecar.history_turn)
			AND created_at IS NOT NULL) FROM embedsidecar.history`) {
		t.Error("the end of a task is not in the partition of now, or does not say when the task was made")
	}
	h := queue.DefaultHistory
	for hour := range 72 {
		h.Keep = []time.Duration{24 * time.Hour, 24 * time.Hour, 6 * time.Hour, 48 * time.Hour}[hour/18]
		f.looks(t, 10, "k")
		f.passes(time.Hour)
		f.prune(t, h)
		if hour/18 == 3 && hour < 71 { // what was kept for six hours is not there for 48
			continue
		}
		oldest := testenv.Value[float64](f.db, "SELECT extract(epoch FROM now() - min(finished_at)) / 3600 FROM embedsidecar.history")
		young := testenv.Value[int](f.db, "SELECT count(*)::int FROM embedsidecar.history WHERE finished_at > now() - $1::interval", h.Keep)
		if most := h.Keep.Hours()*7/6 + 1.1; oldest > most && hour%18 > 4 {
			t.Errorf("hour %d: the oldest is of %.1f hours ago, want %.1f at most", hour, oldest, most)
		}
		if want := 10 * min(hour, int(h.Keep.Hours())-1, 23); hour < 36 && young < want {
			t.Errorf("hour %d: %d entries are younger than %s, want %d", hour, young, h.Keep, want)
		}
	}
	f.passes(100 * time.Hour)
	f.prune(t, h)
	if got := testenv.Value[int](f.db, kept); got != 0 {
		t.Errorf("%d entries are left of a time long ago", got)
	}
}

// P9: history takes no more rows and room than it may, however much is done in a minute: the oldest of it goes first.
func TestP9_HistoryIsBoundedByRowsAndSize(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := queue.History{Keep: 24 * time.Hour, Rows: 600, Bytes: 4 << 30}
	for i := range 20 {
		f.looks(t, 150, "k")
		f.looks(t, 1, "last")
		f.prune(t, h)
		if got := testenv.Value[int](f.db, kept); got > 600 || i > 4 && got < 500 {
			t.Errorf("round %d: %d entries are kept, want up to 600 and no fewer than five sixths of them", i, got)
		}
	}
	f.looks(t, 50_000, "k")
	f.looks(t, 1, "newest")
	f.prune(t, h)
	if got := testenv.Value[int](f.db, kept); got > 600 || got < 500 {
		t.Errorf("%d entries are kept of 50,000 of a minute, want 600", got)
	}
	if testenv.Value[int](f.db, "SELECT count(*)::int FROM embedsidecar.history WHERE row_key = 'newest1'") != 1 {
		t.Error("the newest entry is gone, and older ones stay")
	}
	f.db.MustExec("VACUUM embedsidecar.history")
	size := func() int64 {
		return testenv.Value[int64](f.db, `SELECT sum(pg_total_relation_size(format('embedsidecar.history_%s', i)::regclass))::bigint
			FROM generate_series(0, 7) AS i WHERE pg_relation_size(format('embedsidecar.history_%s', i)::regclass) > 0`)
	}
	h = queue.History{Keep: 24 * time.Hour, Rows: 1e9, Bytes: 2 << 20}
	for range 12 {
		f.looks(t, 2000, "k")
		f.prune(t, h)
	}
	if got := size(); got > h.Bytes || got < h.Bytes/2 {
		t.Errorf("%d bytes are kept, want up to %d", got, h.Bytes)
	}
}
