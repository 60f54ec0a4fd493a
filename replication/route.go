package replication

import (
	"errors"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// A route leads the changes of one relation to one pipeline.
type route struct {
	pipeline *pipeline.Pipeline
	key      []int // places of the key columns in the relation
	watched  []int // places of the watched columns, in the order of the source hash
	vector   int   // place of the destination column; -1 with an embedding table
	always   bool  // the relation lacks a column we know: every change is looked at
	noOld    bool  // its replica identity lacks a column of the key: an UPDATE does not say whether the key was another
}

// newRoute finds a pipeline's columns in a relation. It returns nil if the key is not known (the pipeline does not
// fit its table now) or the relation lacks it: then no change can be told to be of a row.
func newRoute(p *pipeline.Pipeline, rel *pglogrepl.RelationMessage) *route {
	if len(p.Key) == 0 {
		return nil
	}
	place := make(map[string]int, len(rel.Columns))
	for i, c := range rel.Columns {
		place[c.Name] = i
	}
	r := &route{pipeline: p, vector: -1, always: p.WatchAll}
	full := rel.ReplicaIdentity == identityFull
	for _, k := range p.Key {
		i, ok := place[k.Name]
		if !ok {
			return nil
		}
		r.key = append(r.key, i)
		r.noOld = r.noOld || !full && rel.Columns[i].Flags&inIdentity == 0
	}
	for _, w := range p.Watched {
		i, ok := place[w]
		if !ok {
			r.always = true
			continue
		}
		r.watched = append(r.watched, i)
	}
	if p.InSource() {
		i, ok := place[p.IntoColumn]
		if !ok {
			r.always = true
			i = -1
		}
		r.vector = i
	}
	return r
}

// change adds what a change of a row means for the pipeline. One that does not name its row asks for a scan: the WAL
// is that of a time when the table had another key or replica identity than now.
func (r *route) change(tx *transaction, row, old columns, insert bool, sink *buffer) {
	var err error
	if row != nil && !insert {
		err = r.update(tx, row, old, sink)
	} else {
		var key string
		if row == nil {
			row = old
		}
		if key, err = r.keyOf(row, nil); err == nil {
			c := tx.newChange(r.pipeline, key)
			if tx.skip && insert {
				c.Seen, c.Later = r.seen(row, nil, true), true
			}
			sink.add(c)
		}
	}
	if err != nil {
		sink.scan(r.pipeline.ID)
	}
}

// update adds what an UPDATE means for the pipeline: at most one look at the new key, and one at the old if it moved.
// It returns errUnnamed if one of the two is not known.
func (r *route) update(tx *transaction, row, old columns, sink *buffer) error {
	key, err := r.keyOf(row, old)
	if err != nil {
		return err
	}
	c, before := tx.newChange(r.pipeline, key), key
	if old != nil {
		before, err = r.keyOf(old, nil)
	}
	switch {
	case err != nil:
	case before != key:
		sink.add(tx.newChange(r.pipeline, before))
	case r.noOld:
		err = errUnnamed
	case !r.always:
		c.Unchanged = r.patternOf(row, old)
		if tx.skip {
			c.Seen, c.Later = r.seen(row, old, false), true
		}
	}
	sink.add(c)
	return err
}

const (
	inIdentity   = 1   // a flag of a relation's column
	identityFull = 'f' // of a relation: each of its columns

	null      = 'n'
	unchanged = 'u' // a TOASTed value that the update did not touch: it is not in the WAL
	asText    = 't'
	hashed    = database.Hashed
)

// tooLong stands for a value in a key that is longer than any key that is handled.
var tooLong = strings.Repeat("x", pipeline.MaxKey+1)

type columns = []*pglogrepl.TupleDataColumn

// errUnnamed means that a tuple lacks a column of the key: when it was written, the table had another replica identity.
var errUnnamed = errors.New("a change that does not name its row")

// keyOf writes the key found in a tuple. Columns the tuple leaves out as unchanged are taken from the old one.
func (r *route) keyOf(row, old columns) (string, error) {
	values := make([]string, len(r.key))
	for i, place := range r.key {
		c := row[place]
		if c.DataType == unchanged && old != nil {
			c = old[place]
		}
		switch c.DataType {
		case asText:
			values[i] = string(c.Data)
		case hashed:
			values[i] = tooLong
		default:
			return "", errUnnamed
		}
	}
	return pipeline.JoinKey(values), nil
}

// patternOf hashes the watched columns and the destination column of a row after an UPDATE: what the ledger must be
// like, source || vector, for nothing to have changed. Unknown parts match anything.
func (r *route) patternOf(row, old columns) pipeline.Pattern {
	p := pipeline.Pattern{}
	for _, place := range r.watched {
		if hash := hashOf(row, old, place); hash != nil {
			p = p.Known(hash)
		} else {
			p = p.Unknown(pipeline.ColumnHashSize)
		}
	}
	for range r.pipeline.Joins { // what hangs on the row has changes of its own
		p = p.Unknown(pipeline.ColumnHashSize)
	}
	if r.vector < 0 {
		return p.Unknown(pipeline.VectorHashSize)
	}
	switch c := row[r.vector]; c.DataType {
	case null:
		return p.Known(make([]byte, pipeline.VectorHashSize))
	case asText, hashed:
		vector, err := r.pipeline.Stored.ParseText(c.Data)
		if err != nil {
			// Not a vector we could have written: the pattern matches no ledger entry, so the row is looked at.
			return p.Known(append([]byte{1}, make([]byte, pipeline.VectorHashSize-1)...))
		}
		hash := pipeline.VectorHash(vector)
		return p.Known(hash[:])
	}
	return p.Unknown(pipeline.VectorHashSize)
}

// hashOf hashes a column of a row as the ledger has it; nil: the WAL does not say what it is.
func hashOf(row, old columns, place int) pipeline.SourceHash {
	c := row[place]
	if c.DataType == unchanged && old != nil && old[place].DataType != unchanged {
		c = old[place]
	}
	switch c.DataType {
	case null:
		return pipeline.SourceHash{}.AppendColumn(nil)
	case asText:
		data := c.Data
		if data == nil {
			data = []byte{} // pglogrepl gives an empty value as nil; it is not NULL
		}
		return pipeline.SourceHash{}.AppendColumn(data)
	case hashed:
		return pipeline.SourceHash{}.AppendSum(c.Data)
	}
	return nil
}

// seen is what a writer saw who says that a row needs no new vector; nil where what the text reads is not known: then
// nobody can tell whether the row is still what he saw.
func (r *route) seen(row, old columns, insert bool) pipeline.Seen {
	if r.always {
		return nil
	}
	s := pipeline.NewSeen(insert)
	for _, place := range r.watched {
		s = s.Append(hashOf(row, old, place))
	}
	for range r.pipeline.Joins {
		s = s.Append(nil) // it must be what the ledger says
	}
	return s
}

// transaction is the one being decoded.
type transaction struct {
	begin  *pglogrepl.BeginMessage
	hinted bool          // its writer has said how urgent it is:
	lane   pipeline.Lane // so much
	skip   bool          // what comes now needs no new vector
}

// newChange returns a change of a row in the transaction.
func (tx *transaction) newChange(p *pipeline.Pipeline, key string) queue.Change {
	c := queue.Change{
		PipelineID: p.ID, RowKey: key, Lane: p.Priority, XID: tx.begin.Xid, LSN: tx.begin.FinalLSN,
		CommittedAt: tx.begin.CommitTime,
	}
	if tx.hinted {
		c.Lane, c.Later, c.Said = tx.lane, tx.lane == pipeline.Low, true
	}
	return c
}
