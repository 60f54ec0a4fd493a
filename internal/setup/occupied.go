package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/catalog"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// proveEmpty makes sure that destinations which are there hold no vectors of somebody else. It comes after everything
// else was looked at, in transactions of its own: to look for a vector in a column may take as long as to read the
// table.
func (in *initializer) proveEmpty(ctx context.Context) error {
	var mistakes []error
	for _, f := range in.found {
		if !f.Unproven {
			continue
		}
		holds, err := holdsVectors(ctx, in.o.Pool, &f.Pipeline, f.Destination.IntoOID)
		switch {
		case err != nil:
			return refusal.About(f.Pipeline.Name, err)
		case holds && !in.takesUp(f):
			mistakes = append(mistakes, in.occupied(f))
		case holds:
			in.report.Warnings = append(in.report.Warnings,
				fmt.Sprintf("pipeline %q: the embedding table %s is taken up again as an earlier set-up left it: every vector in it is made anew",
					f.Pipeline.Name, catalog.DestinationName(f.Pipeline.Spec)))
		}
	}
	return errors.Join(mistakes...)
}

// vectorBlocks is how much of a table is read by a statement: whoever alters or truncates it waits for that, and
// everybody else behind him.
const vectorBlocks = 2048

// holdsVectors reports whether the destination holds a vector at all. A number other than 0 is that of an embedding
// table.
func holdsVectors(ctx context.Context, db database.Beginner, p *pipeline.Pipeline,
	table uint32,
) (holds bool, err error) {
	where := ""
	if p.InSource() {
		table, where = p.OID, " AND "+p.VectorOf("r")+" IS NOT NULL"
	}
	type leaf struct {
		OID    uint32
		Name   string
		Blocks int64
	}
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("look for vectors in %s: %w", catalog.DestinationName(p.Spec), err)
	}
	var leaves []leaf
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		leaves, err = database.Collect(ctx, tx, "table_blocks", pgx.RowToStructByName[leaf],
			pgx.StrictNamedArgs{"table": table})
		return err
	})
	if err != nil {
		return fail(err)
	}
	for _, l := range leaves {
		for block := int64(0); block <= l.Blocks && !holds; block += vectorBlocks {
			sql := fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s AS r WHERE r.ctid >= '(%d,0)' AND r.ctid < '(%d,0)'%s)",
				l.Name, block, block+vectorBlocks, where)
			err := database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql).Scan(&holds) })
			if database.Denied(err) {
				// A role that may read this column and no other cannot say which blocks.
				sql = "SELECT EXISTS (SELECT FROM ONLY " + l.Name + " AS r WHERE true" + where + ")"
				block = l.Blocks
				err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql).Scan(&holds) })
			}
			if err != nil {
				return fail(err)
			}
		}
	}
	return holds, nil
}
