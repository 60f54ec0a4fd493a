package rows

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// embeddingTable is a destination written only by us, so users' rows are not locked. It is not published, so its
// changes do not come back through the slot.
type embeddingTable struct {
	p   *pipeline.Pipeline
	sql tableStatements
}

type tableStatements struct {
	write  statement // vectors
	empty  statement // delete vectors
	adopt  statement // move vectors from an older generation to this one
	remove statement // delete vectors of removed rows
	reuse  statement // vectors by key
	atOnce statement // vectors and ledger; see screened.go
	pages  pageStatements
}

func newEmbeddingTable(p *pipeline.Pipeline) *embeddingTable {
	t := &embeddingTable{p, tableStatements{
		write: build(p, func(b *builder) string {
			return insert(p, "chunk_no, generation, text_hash, embedded_at, embedding",
				fmt.Sprintf("0, %d, k.text_hash, now(), %s", p.Generation, p.ToStored("k.vector")),
				b.list(textHashes, b.vectors()),
				vectorOver)
		}),
		empty: build(p, func(b *builder) string {
			return "DELETE FROM " + p.Into() + " AS d USING " + b.list() + " WHERE " + b.match("d")
		}),
		adopt: build(p, func(b *builder) string {
			return fmt.Sprintf("UPDATE %s AS d SET generation = %d FROM ", p.Into(), p.Generation) + b.list() + " WHERE " +
				b.match("d")
		}),
		remove: build(p, removeSQL),
		reuse: build(p, func(b *builder) string {
			return "SELECT k.place, d.embedding FROM " + b.list() + " JOIN " + p.Into() + " AS d ON " + b.match("d") +
				" WHERE d.chunk_no = 0" + sameInto(p)
		}),
		pages: newPageStatements(p, p.Into()+" AS r", "", "",
			"NOT EXISTS (SELECT FROM "+source(p)+" WHERE "+p.SameKey("r", "f")+" OFFSET 0)"),
	}}
	if !p.IntoParts { // the statement locks a partition only when it gets to it, after the guard
		t.sql.atOnce = build(p, atOnceSQL)
	}
	return t
}

// removeSQL deletes the vectors of removed rows. The key's spelling must match too: a row with an equal key of another
// spelling (citext, numeric) may have been inserted meanwhile, with a vector of its own. The ledger has an entry for
// such a row. A stored row without an entry is a stray, left by an earlier spelling of the removed row. A stray must be
// unchanged since it was read, because another session may be overwriting it.
func removeSQL(b *builder) string {
	p := b.p
	list, spelled := b.list(keysAsTheyAre), p.KeyExpression
	return "WITH stray AS MATERIALIZED (SELECT o.at, o.version FROM " + list +
		" CROSS JOIN LATERAL (SELECT e.ctid AS at, e.xmin::text AS version, " + spelled("e") + " AS row_key FROM " + p.Into() +
		" AS e WHERE " + b.match("e") + " OFFSET 0) AS o WHERE o.row_key <> k.row_key AND NOT EXISTS (SELECT" +
		" FROM embedsidecar.ledger AS g WHERE g.pipeline_id = " + strconv.Itoa(int(p.ID)) + " AND g.row_key = o.row_key OFFSET 0))" +
		" DELETE FROM " + p.Into() + " AS d USING " + list + " WHERE " + b.match("d") + " AND (" + spelled("d") +
		" = k.row_key OR EXISTS (SELECT FROM stray AS s WHERE s.at = d.ctid AND s.version = d.xmin::text))"
}

// vectorOver are the columns that a vector overwrites.
const vectorOver = "generation = excluded.generation, text_hash = excluded.text_hash," +
	" embedded_at = excluded.embedded_at, embedding = excluded.embedding"

// insert returns the statement that upserts rows of a list into the embedding table.
func insert(p *pipeline.Pipeline, columns, values, list, over string) string {
	names, respell := make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		names[i] = database.Quote(k.Name)
		respell[i] = names[i] + " = excluded." + names[i]
	}
	keys := strings.Join(names, ", ")
	return "INSERT INTO " + p.Into() + " AS d (" + keys + ", " + columns + ") SELECT " + keyValues(p) + ", " + values +
		" FROM " + list + " ON CONFLICT (" + keys + ", chunk_no) DO UPDATE SET " + strings.Join(respell, ", ") + ", " + over
}

func (t *embeddingTable) readParts(b *builder) readParts {
	l := wholeTexts(b)
	l.stored, l.join = t.joined("e.text_hash, e.generation", " AND e.chunk_no = 0 OFFSET 0")
	return l
}

// joined returns how a read gets two columns of the stored rows of a key that meet a condition.
func (t *embeddingTable) joined(columns, which string) (stored, join string) {
	return "d.text_hash, d.generation", "\nLEFT JOIN LATERAL (SELECT " + columns + " FROM " + t.p.Into() + " AS e WHERE " +
		t.p.MatchKey("e", listed(t.p)) + which + ") AS d ON true"
}

func (*embeddingTable) found(stored, generation []byte, r *Row) (err error) {
	r.StoredHash = bytes.Clone(stored)
	r.StoredGeneration, err = parseGeneration(generation)
	return err
}

func (*embeddingTable) holds(r *Row) bool { return bytes.Equal(r.StoredHash, r.LedgerText) }

func (t *embeddingTable) current(r *Row) bool { return r.StoredGeneration == t.p.Generation }

func (t *embeddingTable) VectorHash(w *Write) [pipeline.VectorHashSize]byte {
	return t.p.Stored.Hash(w.Vector)
}

func (t *embeddingTable) atOnce() statement { return t.sql.atOnce }

func (t *embeddingTable) stored() statement { return t.sql.reuse }

func (t *embeddingTable) pages() pageStatements { return t.sql.pages }

func (*embeddingTable) Chunks() *Chunks { return nil }

// hasTrigger tells whether a table or one of its partitions has a trigger, including foreign keys.
func hasTrigger(oid string, parts bool) string {
	return "EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = ANY (" + pipeline.TreeOf(oid, parts) + "))"
}

// QueueGuard checks that the table's name and owner are the checked ones, and that it has no trigger. The owners of the
// table or schema, and roles with the TRIGGER privilege, can change that at any time unless the lock is held.
func (t *embeddingTable) QueueGuard(batch *pgx.Batch, _ []string) error {
	if t.p.IntoOID == 0 {
		return nil
	}
	batch.Queue("LOCK TABLE " + t.p.Into() + " IN ROW EXCLUSIVE MODE") // the lock that writing takes
	parts := t.p.IntoParts
	batch.Queue("SELECT coalesce(pg_catalog.to_regclass($1)::oid = $2, false), coalesce("+
		pipeline.OwnersOf("$2", parts)+" = $3, false), "+hasTrigger("$2", parts), t.p.Into(), t.p.IntoOID,
		t.p.IntoOwners).QueryRow(func(row pgx.Row) error {
		var same, owner, trigger bool
		if err := row.Scan(&same, &owner, &trigger); err != nil {
			return err
		}
		switch {
		case !same:
			return ErrOtherTable
		case !owner:
			return ErrOtherOwner
		case trigger:
			return ErrTrigger
		}
		return nil
	})
	return nil
}

func (*embeddingTable) QueueLock(*pgx.Batch, []string) (*Locks, error) { return nil, nil }

func (t *embeddingTable) Write(ctx context.Context, tx pgx.Tx, c *Change, _ *Locks) error {
	return send(ctx, tx, func(batch *pgx.Batch) error { return t.queue(batch, c) })
}

func send(ctx context.Context, tx pgx.Tx, queue func(batch *pgx.Batch) error) error {
	batch := &pgx.Batch{}
	if err := queue(batch); err != nil || batch.Len() == 0 {
		return err
	}
	return tx.SendBatch(ctx, batch).Close()
}

// queue adds the statements that update the table.
func (t *embeddingTable) queue(batch *pgx.Batch, c *Change) error {
	if len(c.Write) > 0 {
		args, err := t.sql.write.args(t.p, keysOf(c.Write),
			values{textHashes.name: hashesOf(c.Write), "vector": vectorsOf(t.p, c.Write)})
		if err != nil {
			return err
		}
		batch.Queue(t.sql.write.sql, args...)
	}
	for _, some := range []struct {
		statement
		keys []string
	}{{t.sql.adopt, c.Adopt}, {t.sql.empty, c.Empty}, {t.sql.remove, c.Remove}} {
		if len(some.keys) == 0 {
			continue
		}
		args, err := some.args(t.p, some.keys, nil)
		if err != nil {
			return err
		}
		batch.Queue(some.sql, args...)
	}
	return nil
}

func (t *embeddingTable) none() ([]step, error) { return idle(t.p, t.sql.empty, t.sql.write) }

// idle returns statements that delete and write vectors, for no rows.
func idle(p *pipeline.Pipeline, empty, write statement) ([]step, error) {
	none, err := empty.args(p, nil, nil)
	if err != nil {
		return nil, err
	}
	args, err := write.args(p, nil, values{textHashes.name: [][]byte{}, "vector": p.Parameter(nil)})
	return []step{{sql: empty.sql, args: none}, {sql: write.sql, args: args}}, err
}
