package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/mark"
)

// marksSlot is a slot of the demo's own, which keeps what the WAL says of write-backs until the summary reads it. How
// often a row was looked at would tell nothing: the scan and the stream may both look at a row that was inserted
// meanwhile.
const marksSlot = "demo_marks"

// keepMarks makes the slot, and a publication of no table: only messages come through it, and marks are messages.
func keepMarks(ctx context.Context, conn *pgx.Conn, slot string) error {
	if _, err := conn.Exec(ctx, "CREATE PUBLICATION "+marksSlot); err != nil {
		return fmt.Errorf("make the publication for marks: %w", err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot); err != nil {
		return fmt.Errorf("make the slot for marks: %w", err)
	}
	return nil
}

// causedSQL counts the looks at rows that were asked for by the transactions whose commits are given. A task has the
// LSN of the last change that asked for it, and the commit time of the first.
const causedSQL = `SELECT count(*)
FROM   embedsidecar.history AS h
       JOIN unnest($1::pg_lsn[], $2::timestamptz[]) AS w (lsn, committed_at) USING (lsn, committed_at)`

// causedByWriteBacks returns how many transactions are write-backs, by their mark, and how many tasks they caused.
func causedByWriteBacks(ctx context.Context, conn *pgx.Conn, slot string) (writeBacks, tasks int, err error) {
	rows, err := conn.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2, 'messages', 'true')`, slot, marksSlot)
	if err != nil {
		return 0, 0, fmt.Errorf("read the marks: %w", err)
	}
	data, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return 0, 0, fmt.Errorf("read the marks: %w", err)
	}
	var (
		begin *pglogrepl.BeginMessage
		lsns  []string
		times []time.Time
	)
	for _, d := range data {
		message, err := pglogrepl.Parse(d)
		if err != nil {
			return 0, 0, fmt.Errorf("read the marks: %w", err)
		}
		switch m := message.(type) {
		case *pglogrepl.BeginMessage:
			begin = m
		case *pglogrepl.LogicalDecodingMessage:
			if m.Transactional && m.Prefix == mark.WriteBack && begin != nil {
				lsns, times = append(lsns, begin.FinalLSN.String()), append(times, begin.CommitTime)
				begin = nil // a transaction counts once
			}
		}
	}
	if err := conn.QueryRow(ctx, causedSQL, lsns, times).Scan(&tasks); err != nil {
		return 0, 0, fmt.Errorf("count what write-backs caused: %w", err)
	}
	return len(lsns), tasks, nil
}
