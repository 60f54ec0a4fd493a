package worker

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// What code of others may do in our sessions, and what keeps it out of them.

// errOtherTable means that an embedding table's name means another table than the one that was looked at. What hangs
// on that one would run with the rights of our role.
var errOtherTable = errors.New("another table stands where the embedding table was")

// queueGuard makes sure, before a transaction writes into an embedding table, that its name means the table that was
// looked at, and that it stays so until the transaction ends: whoever owns the schema may put another in its place at
// any moment. The batch fails with errOtherTable.
func (w *Worker) queueGuard(batch *pgx.Batch) {
	p := w.o.Pipeline
	if p.ToColumn() || p.IntoOID == 0 {
		return
	}
	batch.Queue("LOCK TABLE " + p.Into() + " IN ROW EXCLUSIVE MODE") // what writing takes anyway
	batch.Queue("SELECT coalesce(pg_catalog.to_regclass($1)::oid = $2, false)", p.Into(),
		p.IntoOID).QueryRow(func(row pgx.Row) error {
		var same bool
		if err := row.Scan(&same); err != nil {
			return err
		}
		if !same {
			return errOtherTable
		}
		return nil
	})
}

// guard is queueGuard for a transaction that has begun.
func (w *Worker) guard(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	if w.queueGuard(batch); batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

// queuePath sets the search_path for the rest of the transaction. Triggers of the user's, under the path of his
// applications, may use views; our own statements may not.
func (*Worker) queuePath(batch *pgx.Batch, path string) {
	batch.Queue(database.PathStatement(path == database.OwnPath), path)
}
