// Package rows reads, compares, locks and writes a pipeline's rows: those of the source table and of the destination,
// which is a column of the source table, an embedding table, or an embedding table of chunks. It decides nothing: the
// worker chooses which rows to process and what to do.
//
// All SQL with a pipeline's names is built here, once per pipeline; testdata shows it as sent.
package rows

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Options configure write-backs to users' rows.
type Options struct {
	UserPath string // search_path of users' triggers; "": "$user", public
}

// Table is a pipeline's source rows with their destination. It is safe for concurrent use.
type Table struct {
	destination

	p     *pipeline.Pipeline
	db    database.DB
	sql   sourceStatements
	pager *pager // of Read
}

// destination is where vectors are stored. To add a kind, implement it and add a case to newDestination.
type destination interface {
	// readParts returns the destination's contribution to the read statement.
	readParts(b *builder) readParts
	// found fills in the destination's contents from a read.
	found(stored, generation []byte, r *Row) error
	// holds reports whether the destination holds the vector recorded in the row's ledger entry. The entry exists, and
	// something is stored.
	holds(r *Row) bool
	// current reports whether the stored data is of the pipeline's generation.
	current(r *Row) bool
	// VectorHash returns the ledger's hash of what is written.
	VectorHash(w *Write) [pipeline.VectorHashSize]byte

	// QueueGuard adds statements to the first batch of a write-back. They check that the destination is still the
	// checked one, and keep it so until the transaction ends. Otherwise the batch fails with ErrOtherTable, ErrTrigger,
	// ErrOtherTriggers or ErrOtherOwner. keys are those of QueueLock.
	QueueGuard(batch *pgx.Batch, keys []string) error
	// QueueLock adds statements that lock the users' rows of a write-back, except rows locked by other sessions. It
	// returns nil if only we write the rows.
	QueueLock(batch *pgx.Batch, keys []string) (*Locks, error)
	// Write updates the destination, in a transaction that has the locks.
	Write(ctx context.Context, tx pgx.Tx, c *Change, locks *Locks) error
	// none returns the statements of Write for no rows.
	none() ([]step, error)

	// atOnce writes vectors together with the ledger; empty if that takes several statements.
	atOnce() statement
	// stored reads vectors by key.
	stored() statement
	// pages return the keys of the destination, and whether their source row is missing; empty for a column.
	pages() pageStatements
	// Chunks returns the chunk operations; nil: a row has one vector.
	Chunks() *Chunks
}

// OfUsers reports whether vectors are stored in users' rows: a user's write then waits for a write-back, which runs the
// users' triggers.
func (t *Table) OfUsers() bool { return t.p.InSource() }

// Began must be called with the transaction of a write-back once it has begun.
func (t *Table) Began(tx pgx.Tx) {
	if t.OfUsers() && t.p.Triggers {
		database.Used(tx)
	}
}

// TryWrite guards and writes like a write-back but without rows, to find out whether writing is possible at all.
func (t *Table) TryWrite(ctx context.Context) error {
	tx, err := database.Begin(ctx, t.db)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to commit
	t.Began(tx)
	if err := send(ctx, tx, func(batch *pgx.Batch) error { return t.QueueGuard(batch, nil) }); err != nil {
		return err
	}
	steps, err := t.none()
	if err != nil {
		return err
	}
	return run(ctx, tx, steps)
}

// Free locks the rows of keys like a write-back and releases them, to find out which are not locked by others.
func (t *Table) Free(ctx context.Context, keys []string) (locks *Locks, err error) {
	tx, err := database.Begin(ctx, t.db)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to commit
	err = send(ctx, tx, func(batch *pgx.Batch) error {
		err := t.QueueGuard(batch, keys)
		if err == nil {
			locks, err = t.QueueLock(batch, keys)
		}
		return err
	})
	return locks, err
}

// step is one separately sent statement of a write-back.
type step struct {
	sql  string
	args []any
	rows int // number of rows it must change, otherwise ErrMoved; 0: any
}

// run executes steps in order. It returns ErrMoved.
func run(ctx context.Context, tx pgx.Tx, steps []step) error {
	for _, s := range steps {
		tag, err := tx.Exec(ctx, s.sql, s.args...)
		if err != nil {
			return err
		}
		if s.rows > 0 && tag.RowsAffected() != int64(s.rows) {
			return ErrMoved
		}
	}
	return nil
}

// Locks are users' rows that no other session can change until the transaction ends. A nil *Locks holds every row: only
// we write them.
type Locks struct {
	Sources map[string]pipeline.SourceHash // current source hash of each row, by key
}

// Hold reports whether a row may be written.
func (l *Locks) Hold(key string) bool { return l == nil || l.Sources[key] != nil }
