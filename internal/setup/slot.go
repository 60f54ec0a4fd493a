package setup

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/slot"
)

// slotName is what Postgres allows.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func findSlot(ctx context.Context, q database.Querier, name string, installed bool) (slot.State, error) {
	if installed {
		return slot.Read(ctx, q, name)
	}
	return slot.ReadUnrecorded(ctx, q, name)
}

// renewal says why a slot must be made (anew), or "" if the one there is good. Making it anew means comparing every
// row. What only the stream may answer, as it is told what to do about gaps, is left to it.
func renewal(s *slot.State, server pglogrepl.IdentifySystemResult, adopt bool) (reason string, err error) {
	v := s.Judge(server)
	switch v.Condition {
	case slot.Good, slot.Moved, slot.Ahead, slot.OtherTimeline:
		return "", nil
	case slot.Absent:
		return v.Condition.String(), nil
	case slot.OtherServer:
		if !adopt {
			return "", v.Err()
		}
	default:
		if err := v.Err(); err != nil {
			return "", err
		}
	}
	if s.Active {
		return "", s.InUse()
	}
	return v.Condition.String(), nil
}

// lockHolders describes the sessions that hold a lock on one of the tables, at most ten.
func lockHolders(ctx context.Context, q database.Querier, tables []uint32) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT concat_ws(' ', 'pid', l.pid, 'of role', a.usename,
		nullif(a.application_name, ''), a.state,
			'holds', l.mode, 'on', l.relation::regclass)
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.relation = ANY ($1) AND l.granted AND l.pid <> pg_backend_pid()
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 10`, tables)
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	return list, nil
}
