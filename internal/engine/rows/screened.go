package rows

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Changes processed directly should take few statements, so there are two. The first screens the changes and reads
// their rows; the second, for a database.Line, writes.

// The result columns of screen: those of read, and these.
const (
	screenVerdict = readColumns + iota
	screenVisible
	screenKnown // whether a row of the pipeline has had the same text
	screenCheckpoint
	screenColumns
)

// screenFormats are the result formats.
var screenFormats = append(append(pgx.QueryResultFormats{}, readFormats...),
	make(pgx.QueryResultFormats, screenColumns-readColumns)...)

// Arrays of the two statements.
var (
	xids         = array{"xid", "bigint"}
	patterns     = array{"pattern", "bytea"}
	versions     = array{"version", "text"}
	sourceHashes = array{"source_hash", "bytea"}
	vectorHashes = array{"vector_hash", "bytea"}
	normHashes   = array{"norm_hash", "bytea"}
	positions    = array{"lsn", "pg_lsn"}
)

// visible tells whether the transaction of k is visible in the statement's snapshot. pgoutput sends the low 32 bits of
// a transaction ID; the full ID is the one nearest to the current one. 0 is known to be visible.
const visible = "(k.xid = 0 OR pg_visible_in_snapshot((e.top - ((e.top - k.xid + 2147483648) & 4294967295) + 2147483648)::text::xid8," +
	" e.snapshot))"

// screenSQL returns the statement that screens changes and reads the rows of those that may be processed directly, in
// one snapshot.
func screenSQL(b *builder, into destination) string {
	p := b.p
	list := b.list(keysAsTheyAre, xids, patterns)
	which, hash := "k.verdict = 'now'", wholeTexts(b).hash
	if p.Text != "" || p.Filter != "" || p.Ignore != "" || len(p.Joins) > 0 { // an expression may call users' functions
		which += " AND " + database.Anew
	}
	return fmt.Sprintf("WITH epoch AS MATERIALIZED (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top,"+
		" pg_current_snapshot() AS snapshot,"+
		" (SELECT c.saved_at::text FROM embedsidecar.lsn_checkpoint AS c WHERE c.slot_name ="+
		" (SELECT p.slot_name FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = %[1]d)) AS checkpoint,"+
		" EXISTS (SELECT FROM embedsidecar.pipeline AS p CROSS JOIN embedsidecar.installation AS a"+
		" WHERE p.pipeline_id = %[1]d AND p.generation = %[2]d AND p.enabled AND a.enabled"+
		" AND embedsidecar.is_open(p.active_minutes, p.active_zone, p.open_until)"+
		" AND embedsidecar.has_budget(p.budget, p.model_budget, p.pipeline_id)) AS open"+
		"), judged AS MATERIALIZED (SELECT k.*, e.checkpoint, %[3]s AS visible,"+
		" CASE WHEN NOT %[3]s OR NOT e.open OR EXISTS (SELECT FROM embedsidecar.task AS t"+
		" WHERE t.pipeline_id = %[1]d AND t.row_key = k.row_key OFFSET 0) THEN 'task'"+
		" ELSE coalesce((SELECT CASE WHEN g.xmin::text::bigint = k.xid THEN 'own' ELSE 'drop' END FROM embedsidecar.ledger AS g"+
		" WHERE g.pipeline_id = %[1]d AND g.row_key = k.row_key AND g.source_hash || g.vector_hash LIKE k.pattern"+
		" AND g.generation = %[2]d), 'now') END AS verdict"+
		" FROM %[4]s CROSS JOIN epoch AS e)\n", p.ID, p.Generation, visible, list) +
		lookSQL(b, into, "judged AS k", which, fmt.Sprintf("k.verdict, k.visible, CASE WHEN f.body IS NOT NULL"+
			" THEN EXISTS (SELECT FROM embedsidecar.ledger AS g WHERE g.text_hash = %s AND g.pipeline_id + 0 = %d OFFSET 0) END, k.checkpoint",
			hash, p.ID))
}

// Screened are screened changes and their rows.
type Screened struct {
	Verdicts []string // of each change: now, own, drop or task
	Hidden   bool     // some transactions are not visible yet
	Rows     []Row    // one per change; only those with verdict now are read
	// Checkpoint is when the stream last enqueued anything.
	Checkpoint string
}

// Screen returns which changes need no task, and reads their rows like Read. Changes are given by distinct row keys,
// transaction IDs, and patterns of the ledger entry of an unchanged row.
func (t *Table) Screen(ctx context.Context, line database.Reader, keys []string, ids []int64, unchanged [][]byte,
	texts int,
) (s Screened, err error) {
	args, err := t.sql.screen.args(t.p, keys, values{"texts": texts, xids.name: ids, patterns.name: unchanged})
	if err != nil {
		return s, err
	}
	s.Verdicts, s.Rows = make([]string, len(keys)), make([]Row, len(keys))
	err = eachLine(ctx, line, screenFormats, t.sql.screen, args,
		func(raw [][]byte) error { return t.scanScreened(raw, keys, &s) })
	return s, wrap.Errorf(err, "screen %d changes of %s", len(keys), t.p.Source())
}

// scanScreened reads a result row of screen.
func (t *Table) scanScreened(raw [][]byte, keys []string, s *Screened) error {
	if err := t.scan(raw, keys, s.Rows); err != nil {
		return err
	}
	place, err := parsePlace(raw[readPlace], len(keys))
	if err != nil {
		return err
	}
	s.Verdicts[place] = string(raw[screenVerdict])
	s.Hidden = s.Hidden || string(raw[screenVisible]) != "t"
	s.Checkpoint = string(raw[screenCheckpoint])
	r := &s.Rows[place]
	r.New = string(raw[screenKnown]) == "f" && !r.Broken // the server hashes a broken text differently
	return nil
}

// Entry is a row's new ledger entry. It is written only if the old one has not changed since it was read.
type Entry struct {
	Key, LSN             string
	Version              *string // nil: there was no entry
	Gone                 bool    // the entry is deleted
	Source, Text, Vector []byte
	Norm                 []byte // hash of the normalised text; without Text: hash of a text without tokens
	Ignored              bool   // the vector is of another text with the same normalised form
	Skipped              []byte // hash of a text whose writer declared that it needs no vector
}

// Columns returns entries as arrays, by parameter name.
func Columns(entries []Entry) map[string]any {
	bytesOf := func(of func(e Entry) []byte) [][]byte { return lists.Map(entries, of) }
	return map[string]any{
		rowKey:            lists.Map(entries, func(e Entry) string { return e.Key }),
		positions.name:    lists.Map(entries, func(e Entry) string { return e.LSN }),
		versions.name:     lists.Map(entries, func(e Entry) *string { return e.Version }),
		"gone":            lists.Map(entries, func(e Entry) bool { return e.Gone }),
		"ignored":         lists.Map(entries, func(e Entry) bool { return e.Ignored }),
		sourceHashes.name: bytesOf(func(e Entry) []byte { return e.Source }),
		textHashes.name:   bytesOf(func(e Entry) []byte { return e.Text }),
		vectorHashes.name: bytesOf(func(e Entry) []byte { return e.Vector }),
		normHashes.name:   bytesOf(func(e Entry) []byte { return e.Norm }),
		"skipped":         bytesOf(func(e Entry) []byte { return e.Skipped }),
	}
}

// CanWriteAtOnce reports whether vectors and ledger can be written by one statement. Users' rows cannot: they are
// locked first.
func (t *Table) CanWriteAtOnce() bool { return t.atOnce().there() }

// Right is the right to write at once: under an epoch of a slot, as long as the stream has enqueued nothing since the
// rows were read (Screened.Checkpoint). So a statement that the server receives after it was given up writes nothing.
type Right struct {
	Slot       string
	Epoch      int64
	Checkpoint string
}

// WriteAtOnce writes vectors and ledger; each row has a write and an entry. held is false if the right is over. passed
// contains the written rows; the others changed since they were read.
func (t *Table) WriteAtOnce(ctx context.Context, line database.Reader, right Right, writes []Write, entries []Entry,
) (held bool, passed map[string]bool, err error) {
	atOnce := t.atOnce()
	more := Columns(entries)
	more["slot"], more["epoch"], more["checkpoint"] = right.Slot, right.Epoch, right.Checkpoint
	more["vector"] = vectorsOf(t.p, writes)
	args, err := atOnce.args(t.p, keysOf(writes), more)
	if err != nil {
		return false, nil, err
	}
	rows, err := line.Query(ctx, atOnce.sql, args...)
	if err != nil {
		return false, nil, err
	}
	var key *string
	passed = make(map[string]bool, len(entries))
	_, err = pgx.ForEachRow(rows, []any{&key}, func() error {
		if held = true; key != nil {
			passed[*key] = true
		}
		return nil
	})
	return held, passed, err
}

// atOnceSQL returns the statement that combines hold_epoch, the guard, write_ledger and the vectors; see there for the
// reasons. The checkpoint's row is locked before anything is written: everything written comes from input, which is
// empty without the lock.
func atOnceSQL(b *builder) string {
	p := b.p
	list := b.list(keysAsTheyAre, versions, sourceHashes, textHashes, normHashes, vectorHashes, positions, b.vectors())
	keys := make([]string, len(p.Key))
	for i := range keys {
		keys[i] = keyParam(i)
	}
	same := ""
	if p.IntoOID != 0 {
		oid := strconv.Itoa(int(p.IntoOID))
		same = " AND pg_catalog.to_regclass(" + database.Literal(p.Into()) + ")::oid = " + oid +
			" AND " + pipeline.OwnersOf(oid, false) + " = " + database.Literal(p.IntoOwners) +
			" AND NOT " + hasTrigger(oid, false)
	}
	columns := func(alias string) string {
		names := append(append([]string{}, keys...), "text_hash", "vector")
		for i, name := range names {
			names[i] = alias + "." + name
		}
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("WITH held AS MATERIALIZED (SELECT FROM embedsidecar.lsn_checkpoint AS c"+
		" WHERE c.slot_name = %[1]s AND c.epoch = %[2]s::bigint AND c.saved_at::text = %[9]s"+
		" AND c.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer"+
		" AND EXISTS (SELECT FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = %[3]d AND p.generation = %[4]d)%[5]s"+
		" AND %[6]s FOR SHARE OF c"+
		"), input AS MATERIALIZED (SELECT k.*, l.ctid AS at FROM %[7]s LEFT JOIN LATERAL (SELECT g.ctid"+
		" FROM embedsidecar.ledger AS g WHERE g.pipeline_id = %[3]d AND g.row_key = k.row_key"+
		" AND g.xmin::text = k.version OFFSET 0) AS l ON true WHERE EXISTS (SELECT FROM held)"+
		" ORDER BY k.row_key COLLATE \"C\""+
		"), changed AS (UPDATE embedsidecar.ledger AS l SET source_hash = i.source_hash, text_hash = i.text_hash,"+
		" norm_hash = i.norm_hash, vector_hash = i.vector_hash, generation = %[4]d, lsn = i.lsn, written_at = now(), skipped = NULL,"+
		" ignored = false"+
		" FROM input AS i"+
		" WHERE l.ctid = i.at AND l.xmin::text = i.version RETURNING l.row_key, %[8]s"+
		"), made AS (INSERT INTO embedsidecar.ledger AS l (pipeline_id, row_key, source_hash, text_hash, norm_hash,"+
		" vector_hash, generation, lsn) SELECT %[3]d, i.row_key, i.source_hash, i.text_hash, i.norm_hash, i.vector_hash,"+
		" %[4]d, i.lsn"+
		" FROM input AS i WHERE i.version IS NULL ORDER BY i.row_key COLLATE \"C\" ON CONFLICT (pipeline_id, row_key)"+
		" DO NOTHING RETURNING l.row_key"+
		"), passed AS MATERIALIZED (SELECT * FROM changed UNION ALL SELECT i.row_key, %[8]s FROM made AS m"+
		" JOIN input AS i USING (row_key)), written AS (",
		b.param("slot"), b.param("epoch"), p.ID, p.Generation, same, database.Anew, list, columns("i"),
		b.param("checkpoint")) +
		insert(p, "chunk_no, generation, text_hash, embedded_at, embedding",
			fmt.Sprintf("0, %d, k.text_hash, now(), %s", p.Generation, p.ToStored("k.vector")), "passed AS k", vectorOver) +
		") SELECT k.row_key FROM passed AS k UNION ALL SELECT NULL WHERE EXISTS (SELECT FROM held)"
}
