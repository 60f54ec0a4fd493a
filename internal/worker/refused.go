package worker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/rows"
)

// without leaves out what a message has in common with a text: every run of several characters that stands in both.
func without(message, text string) string {
	const several = 8
	text = strings.Join(strings.Fields(text), " ")
	if text != "" && len([]rune(text)) < several {
		return strings.ReplaceAll(message, text, "[...]")
	}
	runes := []rune(message)
	common := make([]bool, len(runes))
	for i := 0; i+several <= len(runes); i++ {
		if strings.Contains(text, string(runes[i:i+several])) {
			for j := range several {
				common[i+j] = true
			}
		}
	}
	var b strings.Builder
	for i, r := range runes {
		switch {
		case !common[i]:
			b.WriteRune(r)
		case i == 0 || !common[i-1]:
			b.WriteString("[...]")
		}
	}
	return b.String()
}

// refusal describes why the database refused the row of an item.
func (w *Worker) refusal(it *item, err error) string {
	what := sqlState(err)
	if refusal, ok := errors.AsType[rows.RefusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // a trigger's own words; what they quote of the row is left out
		return what + ": " + without(oneLine(pg.Message, longestMessage), it.row.Text)
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
