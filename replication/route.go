package replication

import (
	"errors"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// route maps the changes of one relation to one pipeline.
type route struct {
	pipeline *pipeline.Pipeline
	key      []int // positions of the key columns in the relation
	watched  []int // positions of the watched columns, in the order of the source hash
	vector   int   // position of the destination column; -1 with an embedding table
	always   bool  // the relation lacks a known column: every change is processed
	noOld    bool  // its replica identity lacks a key column: an UPDATE does not tell whether the key changed
}

// newRoute finds a pipeline's columns in a relation. It returns nil if the key is unknown (the pipeline does not fit
// its table) or missing from the relation: changes cannot be assigned to rows.
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

// change adds a row change for the pipeline. If it does not name its row, it requests a scan: the change was written
// under another key or replica identity.
func (r *route) change(tx *transaction, row, old columns, insert bool, sink *buffer) {
	var err error
	if row != nil && !insert {
		err = r.update(tx, row, old, sink)
	} else {
		var key string
		if row == nil { // DELETE
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

// update adds an UPDATE for the pipeline: a change of the new key, and one of the old key if they differ. It returns
// errUnnamed if one of them is unknown.
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
	inIdentity   = 1   // flag of a relation's column
	identityFull = 'f' // of a relation: all columns

	null      = 'n'
	unchanged = 'u' // a TOASTed value that the UPDATE did not change: it is not in the WAL
	asText    = 't'
	hashed    = database.Hashed
)

// tooLong replaces a key value that exceeds the maximum key length.
var tooLong = strings.Repeat("x", pipeline.MaxKey+1)

type columns = []*pglogrepl.TupleDataColumn

// errUnnamed means that a tuple lacks a key column: the table had another replica identity when it was written.
var errUnnamed = errors.New("a change that does not name its row")

// keyOf returns the key of a tuple. Columns marked as unchanged are taken from the old tuple.
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

// patternOf hashes the watched columns and the destination column after an UPDATE. If the ledger entry (source ||
// vector) matches, nothing changed. Unknown parts match anything.
func (r *route) patternOf(row, old columns) pipeline.Pattern {
	p := pipeline.Pattern{}
	for _, place := range r.watched {
		if hash := hashOf(row, old, place); hash != nil {
			p = p.Known(hash)
		} else {
			p = p.Unknown(pipeline.ColumnHashSize)
		}
	}
	for range r.pipeline.Joins { // joined rows have changes of their own
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
			// We could not have written this value: the pattern matches no ledger entry, so the row is processed.
			return p.Known(append([]byte{1}, make([]byte, pipeline.VectorHashSize-1)...))
		}
		hash := pipeline.VectorHash(vector)
		return p.Known(hash[:])
	}
	return p.Unknown(pipeline.VectorHashSize)
}

// hashOf hashes a column as in the ledger. It returns nil if the WAL does not contain the value.
func hashOf(row, old columns, place int) pipeline.SourceHash {
	c := row[place]
	// Columns outside of the replica identity are NULL in an old key, but no value in TOAST is.
	if c.DataType == unchanged && old != nil && old[place].DataType != null {
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

// seen returns the column hashes that the writer saw when it declared that a row needs no new vector. It returns nil if
// the columns that the text uses are unknown: the row could not be compared later.
func (r *route) seen(row, old columns, insert bool) pipeline.Seen {
	if r.always {
		return nil
	}
	s := pipeline.NewSeen(insert)
	for _, place := range r.watched {
		s = s.Append(hashOf(row, old, place))
	}
	for range r.pipeline.Joins {
		s = s.Append(nil) // must match the ledger
	}
	return s
}

// transaction is the transaction being decoded.
type transaction struct {
	begin  *pglogrepl.BeginMessage
	hinted bool          // the writer gave a hint:
	lane   pipeline.Lane // its lane
	skip   bool          // the following changes need no new vector
	hints  int           // number of hints so far, including invalid ones
}

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
