package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// walinspectSince is the first server with pg_walinspect.
const walinspectSince = 15

// walUse is what stands in a stretch of WAL.
type walUse struct {
	bytes      int64 // between the two ends, padding and page headers included
	images     int64 // of it in page images
	commits    int64
	tuples     int64            // inserted, updated, deleted
	entries    int64            // of B-tree indexes
	byManager  map[string]int64 // bytes of records without images, by resource manager
	byRelation map[string]int64 // and by relation; "" has none
}

func walEnd(ctx context.Context, pool *pgxpool.Pool) (lsn string, err error) {
	if err := pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return "", fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	return lsn, nil
}

// walRecords adds up records by kind and by the first relation that they name. A record is a few hundred bytes with
// one row of its own, so this reads some ten times as fast as it was written.
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

// walSince counts what was written since an LSN. Before PostgreSQL 15 only the bytes are known.
func (p *place) walSince(ctx context.Context, pool *pgxpool.Pool, from string) (walUse, error) {
	u := walUse{byManager: map[string]int64{}, byRelation: map[string]int64{}}
	var to string
	// flushed, because records that are not cannot be read
	err := pool.QueryRow(ctx, `SELECT lsn::text, lsn - $1::text::pg_lsn FROM (SELECT greatest(pg_current_wal_flush_lsn(),
		$1::text::pg_lsn) AS lsn) AS w`, from).Scan(&to, &u.bytes)
	if err != nil {
		return u, fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	if p.pg.Major() < walinspectSince || u.bytes == 0 {
		return u, nil
	}
	rows, err := pool.Query(ctx, walRecords, from, to)
	if err != nil {
		return u, fmt.Errorf("read the WAL: %w", err)
	}
	type record struct {
		Manager, Type, Relation string
		Records, Bytes, Images  int64
	}
	records, err := pgx.CollectRows(rows, pgx.RowToStructByPos[record])
	if err != nil {
		return u, fmt.Errorf("read the WAL: %w", err)
	}
	for _, r := range records {
		u.byManager[r.Manager] += r.Bytes
		u.byRelation[r.Relation] += r.Bytes
		u.images += r.Images
		switch kind, _, _ := strings.Cut(r.Type, "+"); r.Manager + " " + kind {
		case "Heap INSERT", "Heap UPDATE", "Heap HOT_UPDATE", "Heap DELETE":
			u.tuples += r.Records
		case "Btree INSERT_LEAF", "Btree INSERT_POST":
			u.entries += r.Records
		case "Transaction COMMIT":
			u.commits += r.Records
		}
	}
	return u, nil
}
