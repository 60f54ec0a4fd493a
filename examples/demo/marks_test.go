package main

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/mark"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// TestP6_OnlyWhatAWriteBackAskedForCountsAsCausedByIt: a row that was inserted during the scan is looked at by the
// scan and by the stream, and may be so twice after one insert. That is no write-back's doing; a task made by a
// transaction with a mark is.
func TestP6_OnlyWhatAWriteBackAskedForCountsAsCausedByIt(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		ctx := t.Context()
		conn, err := pgx.Connect(ctx, db.URL(testenv.Owner))
		if err != nil {
			t.Fatal(err)
		}
		defer leave(ctx, conn)
		slot := db.SlotName()
		if err := keepMarks(ctx, conn, slot); err != nil {
			t.Fatal(err)
		}
		db.MustExec("CREATE TABLE packages (id integer PRIMARY KEY, summary text)")
		db.MustExec("INSERT INTO packages VALUES (1, 'a')")
		db.MustExec("SELECT pg_logical_emit_message(true, 'somebody', 'a message of others')")
		db.MustExec("SELECT pg_logical_emit_message(false, $1, 'outside of a transaction')", mark.WriteBack)

		// A look by the stream and one by the scan, for one insert.
		look := `INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
			VALUES (0, 1, '1', $1, 1, now(), pg_current_wal_flush_lsn())`
		db.MustExec(look, "embedded")
		db.MustExec(look, "unchanged")
		wantCaused(t, conn, slot, 0, 0)

		// A write-back, with two messages as one of many rows may have.
		db.MustExec("SELECT pg_logical_emit_message(true, '" + mark.WriteBack +
			"', 'tags'), pg_logical_emit_message(true, '" + mark.WriteBack + "', 'tags'); UPDATE packages SET summary = 'b'")
		wantCaused(t, conn, slot, 1, 0)

		// What the stream would make of its row, did nothing know it again.
		db.MustExec(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
			SELECT 0, 1, '1', 'unchanged', 1, '2000-01-01Z'::timestamptz + make_interval(secs => ('x' || encode(substr(data, 10,
			8), 'hex'))::bit(64)::bigint / 1e6),
			       '0/0'::pg_lsn + ('x' || encode(substr(data, 2, 8), 'hex'))::bit(64)::bigint::numeric
			FROM   pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2,
			'messages', 'true')
			WHERE  get_byte(data, 0) = ascii('B') ORDER BY lsn DESC LIMIT 1`, slot, marksSlot)
		wantCaused(t, conn, slot, 1, 1)
	})
}

func wantCaused(t *testing.T, conn *pgx.Conn, slot string, writeBacks, tasks int) {
	t.Helper()
	gotWriteBacks, gotTasks, err := causedByWriteBacks(t.Context(), conn, slot)
	if err != nil || gotWriteBacks != writeBacks || gotTasks != tasks {
		t.Errorf("got %d write-backs that caused %d tasks (%v), want %d and %d", gotWriteBacks, gotTasks, err, writeBacks,
			tasks)
	}
}
