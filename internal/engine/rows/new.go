package rows

import (
	"cmp"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// New returns the table of a pipeline.
func New(p *pipeline.Pipeline, db database.DB, o Options) *Table {
	o.UserPath = cmp.Or(o.UserPath, `"$user", public`)
	t := &Table{p: p, db: db, destination: newDestination(p, db, o)}
	t.sql, t.pager = newSource(p, t.destination), newPager(t, o.Overtime)
	return t
}

func newDestination(p *pipeline.Pipeline, db database.DB, o Options) destination {
	switch {
	case p.InSource():
		return newColumn(p, o)
	case p.Chunked:
		return newChunks(p, db)
	}
	return newEmbeddingTable(p)
}
