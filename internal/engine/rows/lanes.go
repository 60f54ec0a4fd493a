package rows

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Lanes returns the lanes that rows specify, by key. Missing rows and rows without a lane are left out. It runs
// read-only within a time limit. visible reports whether the transactions xids are visible: the lanes are then those
// that they wrote.
func (t *Table) Lanes(ctx context.Context, keys []string, xids []int64, limit time.Duration) (
	lanes map[string]pipeline.Lane, visible bool, err error,
) {
	err = t.Briefly(ctx, limit, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		if lanes, err = t.queueLanes(batch, keys, xids, &visible); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return lanes, visible, wrap.Errorf(err, "read the priorities of %d rows of %s", len(keys), t.p.Source())
}

// queueLanes queues the statements of Lanes. The result is filled when the batch is sent.
func (t *Table) queueLanes(batch *pgx.Batch, keys []string, xids []int64, visible *bool) (map[string]pipeline.Lane,
	error,
) {
	args, err := t.sql.lanes.args(t.p, keys, nil)
	if err != nil {
		return nil, err
	}
	batch.Queue("SET LOCAL transaction_read_only = on")
	batch.Queue(sqlfiles.Query("visible_xids"), pgx.StrictNamedArgs{"xids": xids}).
		QueryRow(func(row pgx.Row) error { return row.Scan(visible) })
	lanes := map[string]pipeline.Lane{}
	batch.Queue(t.sql.lanes.sql, args...).Query(func(rows pgx.Rows) error {
		var (
			place int64
			lane  *int32
		)
		_, err := pgx.ForEachRow(rows, []any{&place, &lane}, func() error {
			if lane != nil {
				lanes[keys[place-1]] = pipeline.Lane(*lane) //nolint:gosec // one of four
			}
			return nil
		})
		return err
	})
	return lanes, nil
}
