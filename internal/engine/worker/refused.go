package worker

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// raisedBy is where a trigger raised an exception, in what the server says of it.
var raisedBy = regexp.MustCompile(`^PL/pgSQL function ([^()\n]+)\([^\n]*\) line (\d+)`)

// refusal describes why the database refused the row of an item.
func (w *Worker) refusal(it *item, err error) string {
	what := database.SQLState(err)
	if refusal, ok := errors.AsType[rows.RefusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // a trigger's own words may be any of the row's
		if at := raisedBy.FindStringSubmatch(pg.Where); at != nil {
			what += ": raised by " + oneLine(at[1], longestMessage) + ", line " + at[2]
		}
		return what
	}
	if !ok || pg.Code != pgerrcode.ProgramLimitExceeded || w.o.Pipeline.Stored != pipeline.StoredSparse {
		return what
	}
	most := len(it.vector)
	for i := range it.chunks {
		most = max(most, len(it.chunks[i].Vector))
	}
	if most <= 2*pipeline.MaxSparseIndexed {
		return what
	}
	return fmt.Sprintf("%s: %d numbers of its sparse vector are not zero, and an HNSW index takes %d: drop the index, or have the model keep fewer", what, most/2, pipeline.MaxSparseIndexed)
}
