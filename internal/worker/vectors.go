package worker

import (
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// parameter returns vectors as the parameter of a statement that writes them: in the type in which they travel.
func parameter(p *pipeline.Pipeline, vectors [][]float32) any {
	if p.Stored == pipeline.StoredSparse {
		sparse := make([]pipeline.Sparse, len(vectors))
		for i, v := range vectors {
			sparse[i] = pipeline.Sparse{Dims: p.Dims, Pairs: v}
		}
		return sparse
	}
	dense := make([]pgvector.Vector, len(vectors))
	for i, v := range vectors {
		dense[i] = pgvector.NewVector(v)
	}
	return dense
}

// refusal describes why the database refused the row of an item.
func (w *Worker) refusal(it *item, err error) string {
	what := sqlState(err)
	if refusal, ok := errors.AsType[refusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // a trigger's own words; what they quote of the row is left out
		return what + ": " + without(oneLine(pg.Message, longestMessage), it.row.text)
	}
	if !ok || pg.Code != pgerrcode.ProgramLimitExceeded || w.o.Pipeline.Stored != pipeline.StoredSparse {
		return what
	}
	most := len(it.vector)
	for i := range it.pieces {
		most = max(most, len(it.pieces[i].vector))
	}
	if most <= 2*pipeline.MaxSparseIndexed {
		return what
	}
	return fmt.Sprintf("%s: %d numbers of its sparse vector are not zero, and an HNSW index takes %d: drop the index, or have the model keep fewer", what, most/2, pipeline.MaxSparseIndexed)
}
