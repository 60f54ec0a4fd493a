package rows

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// column is a destination in the source rows themselves. Users write these rows too, so a write-back locks them, skips
// locked ones, and runs the users' triggers.
type column struct {
	p   *pipeline.Pipeline
	o   Options
	sql columnStatements
}

type columnStatements struct {
	write statement // vectors
	empty statement // delete vectors
	lock  statement // lock rows with their source hash, skipping locked ones
	// rows after triggers: whether the vector is the one written, and the source hash
	after statement
	reuse statement // vectors by key
}

func newColumn(p *pipeline.Pipeline, o Options) *column {
	name := database.Quote(p.IntoColumn)
	update := "UPDATE " + p.Rows() + " AS r SET " + name + " = "
	return &column{p, o, columnStatements{
		write: build(p, func(b *builder) string {
			return update + p.ToStored("k.vector") + " FROM " + b.list(b.vectors()) + " WHERE " + b.matchSource() +
				" RETURNING k.place"
		}),
		empty: build(p, func(b *builder) string {
			return update + "NULL FROM " + b.list() + " WHERE " + b.matchSource() + " RETURNING k.place"
		}),
		// FOR NO KEY UPDATE suffices for updating this column and does not block foreign key checks.
		lock: build(p, func(b *builder) string {
			return "SELECT k.place, f.source FROM " + b.list() + " CROSS JOIN LATERAL (SELECT " + sourceHash(p) +
				" AS source FROM " + source(p) + " WHERE " + b.matchSource() + " FOR NO KEY UPDATE SKIP LOCKED) AS f"
		}),
		after: build(p, func(b *builder) string {
			return "SELECT k.place, coalesce(" + p.SameVector("r."+name, "k.vector") + ", false), " +
				sourceHash(p) + " FROM " + b.list(b.vectors()) + " JOIN " + source(p) + " ON " + b.matchSource()
		}),
		reuse: build(p, func(b *builder) string {
			return "SELECT k.place, r." + name + " FROM " + b.list() + " JOIN " + source(p) + " ON " + b.matchSource() +
				" WHERE r." + name + " IS NOT NULL"
		}),
	}}
}

func (c *column) readParts(b *builder) readParts {
	l := wholeTexts(b)
	l.column, l.stored = "r."+database.Quote(c.p.IntoColumn), "f.stored, NULL::integer"
	return l
}

func (c *column) found(stored, _ []byte, r *Row) error {
	vector, err := c.p.Stored.ParseBinary(stored)
	if err != nil {
		return err
	}
	hash := pipeline.VectorHash(vector)
	r.StoredHash = hash[:]
	return nil
}

func (*column) holds(r *Row) bool { return bytes.Equal(r.StoredHash, r.LedgerVector) }

func (*column) current(*Row) bool { return true } // the ledger has the generation, the column has not

func (c *column) VectorHash(w *Write) [pipeline.VectorHashSize]byte { return c.p.Stored.Hash(w.Vector) }

// QueueGuard checks, for a superuser, that the owners and triggers of the table and its partitions are those that were
// checked before. A new owner can put code into index expressions, and a role with the TRIGGER privilege can create
// triggers; both are only prevented by the lock. For a table partitioned by its key, planning the write locks the
// partitions to be written. With triggers, a row may move to any partition, so all are locked.
func (c *column) QueueGuard(batch *pgx.Batch, keys []string) error {
	if c.p.TriggerMark == "" {
		return nil
	}
	const mode = " IN ROW EXCLUSIVE MODE" // the lock that writing takes
	if !c.p.Partitioned || !c.p.Routed() || c.p.Triggers {
		batch.Queue("LOCK TABLE " + c.p.Rows() + mode)
	} else {
		args, err := c.sql.empty.args(c.p, keys, nil)
		if err != nil {
			return err
		}
		batch.Queue("LOCK TABLE ONLY " + c.p.Rows() + mode)
		batch.Queue("EXPLAIN "+c.sql.empty.sql, args...)
	}
	parts := c.p.Partitioned
	batch.Queue("SELECT "+pipeline.OwnersOf("$1", parts)+" = $2, "+pipeline.TriggersOf("$1", parts)+" = $3", c.p.OID,
		c.p.OwnerMark, c.p.TriggerMark).QueryRow(func(row pgx.Row) error {
		var owners, triggers bool
		if err := row.Scan(&owners, &triggers); err != nil {
			return err
		}
		switch {
		case !owners:
			return ErrOtherOwner
		case !triggers:
			return ErrOtherTriggers
		}
		return nil
	})
	return nil
}

func (*column) atOnce() statement { return statement{} }

func (c *column) stored() statement { return c.sql.reuse }

func (*column) pages() pageStatements { return pageStatements{} }

func (*column) Chunks() *Chunks { return nil }

// beginsToHold comes before the statement that locks users' rows. If the sidecar or its host stops in between, the
// server ends the transaction after this time.
const beginsToHold = "SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '2s', true)"

func (c *column) QueueLock(batch *pgx.Batch, keys []string) (*Locks, error) {
	locks := &Locks{Sources: map[string]pipeline.SourceHash{}}
	batch.Queue(beginsToHold)
	if len(keys) == 0 {
		return locks, nil
	}
	args, err := c.sql.lock.args(c.p, keys, nil)
	if err != nil {
		return nil, err
	}
	var (
		place int64
		hash  []byte
	)
	batch.Queue(c.sql.lock.sql, args...).Query(func(r pgx.Rows) error {
		_, err := pgx.ForEachRow(r, []any{&place, &hash}, func() error {
			locks.Sources[keys[place-1]] = append(pipeline.SourceHash{}, hash...)
			return nil
		})
		return err
	})
	c.same(batch)
	return locks, nil
}

// same checks that the column name still means the checked column. Rows of the table are locked at this point, which
// blocks ALTER TABLE until the transaction ends.
func (c *column) same(batch *pgx.Batch) {
	if c.p.IntoNumber == 0 {
		return
	}
	batch.Queue("SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = $2"+
		" AND attnum = $3 AND NOT attisdropped)", c.p.OID, c.p.IntoColumn, c.p.IntoNumber).
		QueryRow(func(row pgx.Row) error {
			var same bool
			if err := row.Scan(&same); err != nil {
				return err
			}
			if !same {
				return ErrOtherColumn
			}
			return nil
		})
}

func (c *column) Write(ctx context.Context, tx pgx.Tx, change *Change, locks *Locks) error {
	return send(ctx, tx, func(batch *pgx.Batch) error { return c.queue(batch, change, locks) })
}

// queue adds the statements that update the rows.
func (c *column) queue(batch *pgx.Batch, change *Change, locks *Locks) error {
	if len(change.Write) > 0 {
		args, err := c.sql.write.args(c.p, keysOf(change.Write), values{"vector": vectorsOf(c.p, change.Write)})
		if err != nil {
			return err
		}
		c.update(batch, c.sql.write.sql, args, len(change.Write))
	}
	if len(change.Empty) > 0 {
		args, err := c.sql.empty.args(c.p, change.Empty, nil)
		if err != nil {
			return err
		}
		c.update(batch, c.sql.empty.sql, args, len(change.Empty))
	}
	if c.p.Triggers && len(change.Write)+len(change.Empty) > 0 {
		// Run deferred constraint triggers now, before the transaction holds locks that the stream may need.
		queuePath(batch, c.o.UserPath)
		batch.Queue("SET CONSTRAINTS ALL IMMEDIATE")
		queuePath(batch, database.OwnPath)
	}
	return c.after(batch, change, locks)
}

// NoVector is the vector hash of a row without a vector.
var NoVector [pipeline.VectorHashSize]byte

// update adds an UPDATE of users' rows and checks that it updated all of them.
func (c *column) update(batch *pgx.Batch, sql string, args []any, want int) {
	// The table's triggers were written for the application's search_path and run under it. The statement itself
	// qualifies every name.
	queuePath(batch, c.o.UserPath)
	defer queuePath(batch, database.OwnPath)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n != want {
			return errSuppressed
		}
		return nil
	})
}

// queuePath sets the search_path for the rest of the transaction. Triggers run under the application's path and may use
// views; our own statements may not.
func queuePath(batch *pgx.Batch, path string) {
	batch.Queue(database.PathStatement(path == database.OwnPath), path)
}

// after adds the query for the state of the written rows after triggers, if there are triggers.
func (c *column) after(batch *pgx.Batch, change *Change, locks *Locks) error {
	if !c.p.Triggers || len(change.Write) == 0 {
		return nil
	}
	args, err := c.sql.after.args(c.p, keysOf(change.Write), values{"vector": vectorsOf(c.p, change.Write)})
	if err != nil {
		return err
	}
	batch.Queue(c.sql.after.sql, args...).Query(func(rows pgx.Rows) error {
		var (
			place int
			kept  bool
			hash  []byte
		)
		_, err := pgx.ForEachRow(rows, []any{&place, &kept, &hash}, func() error {
			return change.left(place-1, locks, kept, hash)
		})
		return err
	})
	return nil
}

// left checks a written row after triggers: the vector must be the one written. If the text changed, it calls Moved.
func (c *Change) left(i int, locks *Locks, kept bool, source []byte) error {
	switch {
	case !kept:
		return errReplaced
	case bytes.Equal(source, locks.Sources[c.Write[i].Key]) || c.Moved == nil:
		return nil
	}
	return c.Moved(i)
}

func (c *column) none() ([]step, error) { return idle(c.p, c.sql.empty, c.sql.write) }
