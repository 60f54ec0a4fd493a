package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// walinspectSince is the first server with pg_walinspect.
const walinspectSince = 15

// walUse is the content of a range of WAL.
type walUse struct {
	bytes   int64 // in the range, including padding and page headers
	images  int64 // of it in page images
	commits int64
	tuples  int64               // inserted, updated, deleted
	entries int64               // of B-tree indexes
	by      [2]map[string]int64 // bytes of records without images, byManager and byRelation; "" has none
}

const byManager, byRelation = 0, 1

// walRecords adds up records by kind and by their first relation. It reads about ten times as fast as the WAL was
// written.
const walRecords = `
	WITH record AS MATERIALIZED (
		SELECT resource_manager AS manager, record_type AS type, substring(block_ref
		FROM 'rel [0-9]+/[0-9]+/([0-9]+)') AS node,
			count(*) AS records, sum(record_length - fpi_length)::bigint AS bytes, sum(fpi_length)::bigint AS images
		FROM bench.pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn) GROUP BY 1, 2, 3
	), relation AS (
		SELECT pg_relation_filenode(c.oid)::text AS node, CASE c.relkind
			WHEN 'i' THEN 'index ' || c.relname WHEN 't' THEN 'TOAST of ' || coalesce(t.relname, '?')
			WHEN 'S' THEN 'sequence ' || c.relname ELSE c.relname END AS name
		FROM pg_class AS c LEFT JOIN pg_class AS t ON t.reltoastrelid = c.oid
		WHERE c.relkind IN ('r', 'i', 't', 'S', 'm')
	)
	SELECT r.manager, r.type, CASE WHEN r.node IS NULL THEN '' ELSE coalesce(n.name, 'gone or shared') END AS relation,
		sum(r.records)::bigint AS records, sum(r.bytes)::bigint AS bytes, sum(r.images)::bigint AS images
	FROM record AS r LEFT JOIN relation AS n ON n.node = r.node
	GROUP BY 1, 2, 3`

// walSince counts the WAL since an LSN. Before PostgreSQL 15 it knows only the bytes.
func (p *place) walSince(ctx context.Context, pool *pgxpool.Pool, from string) walUse {
	u := walUse{by: [2]map[string]int64{{}, {}}}
	var to string
	// the flushed position, because unflushed records cannot be read
	err := pool.QueryRow(ctx, `SELECT lsn::text, lsn - $1::text::pg_lsn FROM (SELECT greatest(pg_current_wal_flush_lsn(),
		$1::text::pg_lsn) AS lsn) AS w`, from).Scan(&to, &u.bytes)
	check(wrap.Errorf(err, "read the end of the WAL"))
	if p.pg.Major() < walinspectSince || u.bytes == 0 {
		return u
	}
	rows, _ := pool.Query(ctx, walRecords, from, to)
	var (
		manager, kind, relation string
		records, bytes, images  int64
	)
	_, err = pgx.ForEachRow(rows, []any{&manager, &kind, &relation, &records, &bytes, &images}, func() error {
		u.by[byManager][manager] += bytes
		u.by[byRelation][relation] += bytes
		u.images += images
		switch kind, _, _ := strings.Cut(kind, "+"); manager + " " + kind {
		case "Heap INSERT", "Heap UPDATE", "Heap HOT_UPDATE", "Heap DELETE":
			u.tuples += records
		case "Btree INSERT_LEAF", "Btree INSERT_POST":
			u.entries += records
		case "Transaction COMMIT":
			u.commits += records
		}
		return nil
	})
	check(wrap.Errorf(err, "read the WAL"))
	return u
}

// statementUse is the statements sent, and their time in ms, including waits.
type statementUse struct {
	Calls             int64
	Planner, Executor float64
}

// statements adds up the statements since the reset, except the writer's and the benchmark's.
func statements(ctx context.Context, pool *pgxpool.Pool) (u statementUse) {
	err := pool.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(total_plan_time), 0),
		coalesce(sum(total_exec_time), 0) FROM bench.pg_stat_statements(false) AS s JOIN pg_database AS d ON d.oid = s.dbid
		WHERE d.datname = current_database()`).Scan(&u.Calls, &u.Planner, &u.Executor)
	check(wrap.Errorf(err, "ask for the statements"))
	return u
}

// fsyncs is how often the server has flushed its WAL to the disk.
func (p *place) fsyncs(ctx context.Context, pool *pgxpool.Pool) int64 {
	const ioSince = 18 // the WAL is in pg_stat_io, no longer in pg_stat_wal
	sql := "SELECT wal_sync FROM pg_stat_wal"
	if p.pg.Major() >= ioSince {
		sql = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
	}
	return value[int64](ctx, pool, sql)
}
