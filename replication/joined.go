package replication

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// lead is a pipeline that changes of a table are about: those of its rows, or of what is joined to them.
type lead struct {
	*pipeline.Pipeline
	join int // the place of the joined table among the pipeline's links, from 1; 0: the table is its source
}

// joined leads the changes of one relation to the rows of a pipeline that its rows have a part in.
type joined struct {
	pipeline *pipeline.Pipeline
	number   int
	on       []int // places of the columns that say which rows these are
	watched  []int // places of the columns that matter; nil: each does
	full     bool  // the WAL has the whole old row
	noOld    bool  // it does not name the old values of the columns: each change of what is there asks for a scan
}

// newJoined finds a link's columns in a relation; nil: it lacks one of those that say which rows are meant.
func newJoined(p *pipeline.Pipeline, number int, rel *pglogrepl.RelationMessage) *joined {
	place := make(map[string]int, len(rel.Columns))
	for i, c := range rel.Columns {
		place[c.Name] = i
	}
	join := p.Links()[number-1].Table()
	r := &joined{pipeline: p, number: number, full: rel.ReplicaIdentity == identityFull}
	for _, on := range join.On {
		at, ok := place[on.Column]
		if !ok {
			return nil
		}
		r.on = append(r.on, at)
		r.noOld = r.noOld || !r.full && rel.Columns[at].Flags&inIdentity == 0
	}
	for _, name := range join.Uses {
		at, ok := place[name]
		if !ok { // a generated column, which the WAL may leave out
			r.watched = nil
			break
		}
		r.watched = append(r.watched, at)
	}
	return r
}

// same reports whether an UPDATE of which the whole old row is known changed nothing that matters.
func (r *joined) same(row, old columns) bool {
	for _, at := range r.watched {
		a, b := row[at], old[at]
		if a.DataType != unchanged && (a.DataType != b.DataType || !bytes.Equal(a.Data, b.Data)) {
			return false
		}
	}
	return len(r.watched) > 0
}

// valuesOf returns the values of a tuple that say which rows it has a part in. It returns "" for none: NULL is equal to
// nothing.
func (r *joined) valuesOf(row, old columns) (values string, err error) {
	list := make([]string, len(r.on))
	for i, at := range r.on {
		c := row[at]
		if c.DataType == unchanged && old != nil {
			c = old[at]
		}
		switch c.DataType {
		case null:
			return "", nil
		case asText:
			list[i] = string(c.Data)
		default: // too long to be kept, or not in the WAL
			return "", errUnnamed
		}
	}
	if values = pipeline.JoinKey(list); len(values) > pipeline.MaxKey {
		return "", errUnnamed
	}
	return values, nil
}

// change adds what a change of a joined row means: a look at the rows that it has a part in now, and at those that it
// had one in before.
func (r *joined) change(tx *transaction, row, old columns, insert bool, sink *buffer) {
	if row != nil && old != nil && r.full && r.same(row, old) {
		return
	}
	if r.noOld && !insert {
		sink.scan(r.pipeline.ID)
		return
	}
	var before, after string
	var errBefore, errAfter error
	if old != nil {
		before, errBefore = r.valuesOf(old, nil)
	}
	if row != nil {
		after, errAfter = r.valuesOf(row, old)
	}
	if errBefore != nil || errAfter != nil {
		sink.scan(r.pipeline.ID)
		return
	}
	for _, values := range slices.Compact([]string{before, after}) {
		if values != "" {
			c := tx.newChange(r.pipeline, values)
			c.Join = r.number
			sink.add(c)
		}
	}
}

// Owners finds the rows that changes of joined rows are about. changes come in the order of the stream, and stay in
// it; those of joined rows give way to changes of rows. Of some it is told that a scan shall find them: named, or,
// where there are no names, any row of the pipeline.
type Owners func(ctx context.Context, changes []queue.Change) (found []queue.Change, scans map[int32][]pipeline.Owner,
	err error)
