package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// untracked, added to a URL, keeps a session of ours out of pg_stat_statements.
const untracked = "&pg_stat_statements.track=none"

// countStatements switches pg_stat_statements on or off, and reports whether the server has it.
func (p *place) countStatements(ctx context.Context, on bool) (bool, error) {
	if p.server["shared_preload_libraries"] != "pg_stat_statements" {
		return false, nil
	}
	for _, setting := range [][2]string{
		{"compute_query_id", "on"}, {"pg_stat_statements.track", "top"}, {"pg_stat_statements.track_planning", "on"},
	} {
		sql := "ALTER SYSTEM SET " + setting[0] + " = " + setting[1]
		if !on {
			sql = "ALTER SYSTEM RESET " + setting[0]
		}
		if err := p.admin(ctx, sql); err != nil {
			return false, err
		}
	}
	return true, p.admin(ctx, "SELECT pg_reload_conf()")
}

// statement is one that was sent, with its constants left out.
type statement struct {
	Query    string
	Calls    int64
	Planner  float64 // ms in all, its waiting included
	Executor float64
}

func resetStatements(ctx context.Context, pool *pgxpool.Pool, counted bool) error {
	if !counted {
		return nil
	}
	if _, err := pool.Exec(ctx, "SELECT bench.pg_stat_statements_reset()"); err != nil {
		return fmt.Errorf("forget the statements: %w", err)
	}
	return nil
}

// statements are those since the reset, but for the writer's and ours. They are asked of the
// function, because our sessions refuse views that are not the server's own.
func statements(ctx context.Context, pool *pgxpool.Pool, counted bool) ([]statement, error) {
	if !counted {
		return nil, nil
	}
	rows, err := pool.Query(ctx, `SELECT query, sum(calls)::bigint, sum(total_plan_time), sum(total_exec_time)
		FROM bench.pg_stat_statements(true) AS s JOIN pg_database AS d ON d.oid = s.dbid
		WHERE d.datname = current_database() GROUP BY 1`)
	if err != nil {
		return nil, fmt.Errorf("ask for the statements: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	if err != nil {
		return nil, fmt.Errorf("ask for the statements: %w", err)
	}
	return found, nil
}

// fsyncs is how often the server has flushed its WAL to the disk. A backend reports what it did at most once a second
// and at its end, so this is asked before a load and when whoever worked beside it has gone.
func (p *place) fsyncs(ctx context.Context, pool *pgxpool.Pool) (n int64, err error) {
	const ioSince = 18 // pg_stat_io has the WAL, and pg_stat_wal has not any more
	sql := "SELECT wal_sync FROM pg_stat_wal"
	if p.pg.Major() >= ioSince {
		sql = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
	}
	if err := pool.QueryRow(ctx, sql).Scan(&n); err != nil {
		return 0, fmt.Errorf("ask for the fsyncs: %w", err)
	}
	return n, nil
}
