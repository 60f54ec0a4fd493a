package queue_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP9_MeasuresTakeTheSameRoomAfterAMonth makes up a month of minutes: what is measured is kept in as many rows, and
// bytes, as after the first week, and holds the last week and nothing older.
func TestP9_MeasuresTakeTheSameRoomAfterAMonth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const days, every = 30, 17 // a measurement each 17 minutes comes to each place in turn
	conn, err := f.db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var room int64
	for day := range days {
		batch := &pgx.Batch{}
		for minute := day * 24 * 60; minute < (day+1)*24*60; minute += every {
			batch.Queue(sqlfiles.Query("add_spent"), pgx.StrictNamedArgs{
				"pipeline_ids": []int32{f.id}, "tokens": []int64{7}, "embedded": []int64{1}, "reused": []int64{0},
				"unchanged": []int64{0}, "cut": []int64{0}, "rows_embedded": []int64{1}, "rows_reused": []int64{0},
				"rows_failed": []int64{0}, "prices": []float64{0}, "search_tokens": []int64{0},
				"search_prices": []float64{0}, "ago": fmt.Sprintf("%d minutes", days*24*60-minute),
				"freshness": []string{"{0,0,3,0,0,0,0,0,0,0,0,0,1,2,3,4,5,0,0,0,0,0,0,0,0,0,1}"},
			})
		}
		if err := conn.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Fatal(err)
		}
		f.db.MustExec(`VACUUM embedsidecar.measure`) // as the server does by itself
		if day == days/2 {
			room = testenv.Value[int64](f.db, `SELECT pg_total_relation_size('embedsidecar.measure')`)
		}
	}
	const most = 512 << 10 // of a pipeline, as docs/dashboard.md tells
	now := testenv.Value[int64](f.db, `SELECT pg_total_relation_size('embedsidecar.measure')`)
	rows := testenv.Value[int64](f.db, `SELECT count(*) FROM embedsidecar.measure`)
	if rows > 2*(128+1024) || now > room+room/4 || now > 2*most {
		t.Errorf("%d rows in %d bytes after a month, and it was %d after half of it", rows, now, room)
	}
	tokens := testenv.Value[int64](f.db, `SELECT sum(tokens)::bigint FROM embedsidecar.measure
		WHERE pipeline_id = 0 AND minutes = 10 AND began > now() - interval '7 days'`)
	if want := int64(7 * 7 * 24 * 60 / every); tokens < want-2*7 || tokens > want+2*7 {
		t.Errorf("%d tokens are known of the last week, want about %d", tokens, want)
	}
}
