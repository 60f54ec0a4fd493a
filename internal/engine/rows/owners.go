package rows

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Owners finds the source rows that use joined rows, by the join values: the keys for each of values, in order. many
// marks values with too many rows; it marks all values if there are too many rows together or if limit is exceeded.
func (t *Table) Owners(ctx context.Context, link pipeline.Link, values []string, limit time.Duration) (keys [][]string,
	many []bool, err error,
) {
	sql, args, err := t.ownersBy(link, values)
	if err != nil {
		return nil, nil, err
	}
	keys, many = make([][]string, len(values)), make([]bool, len(values))
	total := 0
	err = t.Briefly(ctx, limit, func(ctx context.Context, tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sql, args...)
		var (
			place int
			key   string
		)
		_, err := pgx.ForEachRow(rows, []any{&place, &key}, func() error {
			total++
			keys[place-1] = append(keys[place-1], key)
			return nil
		})
		return err
	})
	if err != nil && !overran(err) {
		return nil, nil, fmt.Errorf("find rows of %s by rows of %s: %w", t.p.Source(), link.Table().Table, err)
	}
	for i := range keys {
		if many[i] = err != nil || total > mostOwners || len(keys[i]) > ownersEach; many[i] {
			keys[i] = nil
		}
	}
	return keys, many, nil
}

// ownersEach limits the rows found per value, mostOwners those of all values together.
const ownersEach, mostOwners = 500, 2000

// ownersBy builds the statement of Owners.
func (t *Table) ownersBy(link pipeline.Link, values []string) (sql string, args []any, err error) {
	on := link.Table().On
	lists, columns, exprs := make([]string, len(on)), make([]string, len(on)), make([]string, len(on))
	given := make([][]string, len(on))
	for i := range on {
		lists[i] = "pg_catalog.unnest($" + strconv.Itoa(i+1) + "::text[])"
		columns[i] = "v" + strconv.Itoa(i+1)
		exprs[i] = "k." + columns[i]
	}
	for _, v := range values {
		parts, err := pipeline.SplitKey(v, len(on))
		if err != nil {
			return "", nil, err
		}
		for i, part := range parts {
			given[i] = append(given[i], part)
		}
	}
	for i := range given {
		args = append(args, given[i])
	}
	return fmt.Sprintf("SELECT k.place, f.row_key FROM ROWS FROM (%s) WITH ORDINALITY AS k (%s, place) CROSS JOIN LATERAL"+
		" (SELECT %s AS row_key FROM %s WHERE %s LIMIT %d) AS f LIMIT %d", strings.Join(lists, ", "),
		strings.Join(columns, ", "), t.p.KeyExpression("r"), source(t.p), link.OwnersOf(exprs), ownersEach+1,
		mostOwners+1), args, nil
}
