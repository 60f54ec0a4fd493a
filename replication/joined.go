package replication

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// lead is a pipeline affected by changes of a table, either its source table or a joined one.
type lead struct {
	*pipeline.Pipeline
	join int // index of the joined table among the pipeline's links, from 1; 0: the source table
}

// joined maps changes of a joined relation to the source rows of a pipeline that use the changed row.
type joined struct {
	pipeline *pipeline.Pipeline
	number   int
	on       []int // positions of the join columns
	watched  []int // positions of the columns that matter; nil: all of them
	full     bool  // the WAL contains the whole old row
	noOld    bool  // the WAL lacks the old values of join columns: each UPDATE and DELETE requests a scan
}

// newJoined finds a link's columns in a relation. It returns nil if a join column is missing.
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

// same reports whether an UPDATE with a known old row left all columns that matter unchanged.
func (r *joined) same(row, old columns) bool {
	for _, at := range r.watched {
		a, b := row[at], old[at]
		if a.DataType != unchanged && (a.DataType != b.DataType || !bytes.Equal(a.Data, b.Data)) {
			return false
		}
	}
	return len(r.watched) > 0
}

// valuesOf returns a tuple's join values as a key. It returns "" if one is NULL: NULL matches nothing.
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

// change adds a change of a joined row: the source rows that use it now, and those that used it before, must be
// checked.
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

// Owners finds the source rows for changes of joined rows. In found, in any order, source row changes replace those of
// joined rows: one for each source row of a joined row, however often that was changed. scans lists rows that a scan
// must find, by owner; a nil list means all rows of the pipeline.
type Owners func(ctx context.Context, changes []queue.Change) (found []queue.Change, scans map[int32][]pipeline.Owner,
	err error)
