package worker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// strays returns keys of an embedding table that neither the source table nor the ledger knows: of a source table that was dropped
// and made anew, or of whoever filled an embedding table that was taken over. They are given in portions, without those that have a
// task already.
func (s *Scan) strays(ctx context.Context) ([]string, error) {
	p := s.w.o.Pipeline
	if s.w.sql.orphans == "" {
		return nil, nil
	}
	sql := s.w.sql.orphans + fmt.Sprintf(" AND NOT EXISTS (SELECT FROM embedsidecar.task AS t WHERE t.pipeline_id = %d AND t.row_key = %s) LIMIT %d",
		p.ID, p.KeyExpression("d"), scanAhead)
	rows, err := s.w.o.DB.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
