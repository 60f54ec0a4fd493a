// Package rows is where a pipeline's rows are read, compared, locked and written: those of the source table, and those
// of the destination, which is a column of the source table, an embedding table, or an embedding table of chunks. It
// knows how, and decides nothing: which row is looked at, what it needs and how its task ends is for the worker to say.
//
// All SQL that is built from a pipeline's names is made here, once for each pipeline, and stands in testdata as it is
// sent.
package rows

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Options are what a write-back to rows of users' needs.
type Options struct {
	UserPath string // the search_path that triggers of users' run under; "": "$user", public
}

// Table is the source rows of a pipeline with their destination. It may be shared by goroutines.
type Table struct {
	destination

	p     *pipeline.Pipeline
	db    database.DB
	sql   sourceStatements
	pager *pager // of Read
}

// destination is where vectors go. A new kind of destination is a new implementation, and a case in newDestination.
type destination interface {
	// look says what of the destination is read along with a row.
	look(b *builder) looking
	// found fills in what a look has found of the destination.
	found(stored, generation []byte, r *Row) error
	// holds reports whether the destination holds the vector that the row's ledger entry says we wrote. There is one,
	// and something is stored.
	holds(r *Row) bool
	// current reports whether what is stored of the row is of the pipeline's generation.
	current(r *Row) bool
	// VectorHash is that of what a write-back writes, for the ledger.
	VectorHash(w *Write) [pipeline.VectorHashSize]byte

	// QueueGuard adds to the batch that begins a write-back what makes sure that the destination is the one that was
	// looked at, and stays so until the transaction ends. The batch fails otherwise, with ErrOtherTable, ErrTrigger,
	// ErrOtherTriggers or ErrOtherOwner. keys are those of QueueLock.
	QueueGuard(batch *pgx.Batch, keys []string) error
	// QueueLock adds what locks those rows of users' that a write-back changes, but for those that are locked by
	// somebody. It returns nil where nobody else writes the rows.
	QueueLock(batch *pgx.Batch, keys []string) (*Locks, error)
	// Write brings the destination up to date, in a transaction that has the locks.
	Write(ctx context.Context, tx pgx.Tx, c *Change, locks *Locks) error
	// none is what Write does, with no row in hand.
	none() ([]step, error)

	// atOnce is the statement that writes vectors together with the ledger; none where it takes more than one.
	atOnce() statement
	// stored is the statement that reads vectors by key.
	stored() statement
	// pages are the statements for the keys that the destination itself has, with whether they have no source row; none
	// where vectors go with their rows.
	pages() pageStatements
	// Chunks is the destination's way with chunks; nil: a row has one vector.
	Chunks() *Chunks
}

// OfUsers reports whether vectors go into rows of users': who changes one waits for a write-back, and his triggers run
// in it.
func (t *Table) OfUsers() bool { return t.p.InSource() }

// Began is called with the transaction of a write-back once it has begun.
func (t *Table) Began(tx pgx.Tx) {
	if t.OfUsers() && t.p.Triggers {
		database.Used(tx)
	}
}

// TryWrite guards and writes as a write-back does, with no row in hand: it finds out whether anything can be written at
// all.
func (t *Table) TryWrite(ctx context.Context) error {
	tx, err := database.Begin(ctx, t.db)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only asks
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

// Free locks the rows of keys as a write-back does, and lets them go: it finds out which nobody else has locked.
func (t *Table) Free(ctx context.Context, keys []string) (locks *Locks, err error) {
	tx, err := database.Begin(ctx, t.db)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only asks
	err = send(ctx, tx, func(batch *pgx.Batch) error {
		err := t.QueueGuard(batch, keys)
		if err == nil {
			locks, err = t.QueueLock(batch, keys)
		}
		return err
	})
	return locks, err
}

// step is one statement of a write-back that is sent by itself.
type step struct {
	sql  string
	args []any
	rows int // that it must change, or they were moved; 0: whatever is there
}

// run takes steps in their order. It returns ErrMoved.
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

// Locks are rows of users' that nobody else can change until the transaction ends. None (nil) hold every row: nobody
// else writes it.
type Locks struct {
	Sources map[string]pipeline.SourceHash // that each row has now, by key
}

// Hold reports whether a row may be written.
func (l *Locks) Hold(key string) bool { return l == nil || l.Sources[key] != nil }
