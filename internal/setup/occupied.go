package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
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
			becomes := "every vector in it is replaced, unless this is init --adopt"
			if f.Inherits = in.o.Adopt; f.Inherits {
				becomes = "its vectors are kept, but those of texts that have changed since"
			}
			in.report.Warnings = append(in.report.Warnings,
				fmt.Sprintf("pipeline %q: the embedding table %s is taken up again as an earlier set-up left it: %s",
					f.Pipeline.Name, catalog.DestinationName(f.Pipeline.Spec), becomes))
		}
	}
	return errors.Join(mistakes...)
}

// inherit writes the ledger of an embedding table that an earlier set-up left: the table says of which text each vector
// is. The entries are of no generation of the pipeline's, so that its backfill looks at every row, and finds the texts
// that are what they were. What the vectors are made of is not looked at: verify --deep does that.
func inherit(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, id int32) error {
	text, whole := "(array_agg(e.text_hash))[1]", " HAVING count(*) = 1 AND min(e.chunk_no) = 0"
	if p.Chunking.On() { // that of the whole text is not known; the chunks are
		text, whole = "sha256('')", ""
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO embedsidecar.ledger
		(pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn)
		SELECT %d, %s, '', %s, substr(sha256(string_agg(e.text_hash, '' ORDER BY e.chunk_no)), 1, 8), 0, '0/0'
		FROM %s AS e WHERE e.text_hash IS NOT NULL GROUP BY 2%s`, id, p.KeyExpression("e"), text, p.Into(), whole))
	return wrap.Errorf(err, "take over the vectors of %s", catalog.DestinationName(p.Spec))
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
