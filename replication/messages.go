package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// relation is a published table as announced in the stream.
type relation struct {
	message *pglogrepl.RelationMessage
	oids    []uint32 // its own oid and those of the partitioned tables above it
	routes  []*route
	joined  []*joined
	unnamed []int32 // pipelines whose key is unknown or missing from the relation: their rows can only be scanned
	routed  bool    // routes, joined and unnamed are computed from the session's routes
}

// decode handles one pgoutput message.
func (ses *session) decode(ctx context.Context, data []byte) error {
	if len(data) > 0 && data[0] == database.Stub {
		return ses.stub(ctx, data[1:])
	}
	parsed, err := parse(data)
	if err != nil {
		return err
	}
	switch m := parsed.(type) {
	case *pglogrepl.BeginMessage:
		ses.tx = &transaction{begin: m}
		ses.replayed = m.FinalLSN < ses.start
	case *pglogrepl.CommitMessage:
		return ses.commit(m)
	case *pglogrepl.RelationMessage:
		return ses.relation(ctx, m)
	case *pglogrepl.LogicalDecodingMessage:
		ses.logicalMessage(ctx, m)
	case *pglogrepl.InsertMessage:
		return ses.rowChange(m.RelationID, m.Tuple, nil, true)
	case *pglogrepl.UpdateMessage:
		return ses.rowChange(m.RelationID, m.NewTuple, m.OldTuple, false)
	case *pglogrepl.DeleteMessage:
		return ses.rowChange(m.RelationID, nil, m.OldTuple, false)
	case *pglogrepl.TruncateMessage:
		return ses.truncate(m)
	}
	return nil // types and origins do not matter
}

// rowChange passes an INSERT, UPDATE or DELETE to the pipelines of its table.
func (ses *session) rowChange(relationID uint32, newTuple, oldTuple *pglogrepl.TupleData, insert bool) error {
	if ses.replayed {
		return nil
	}
	if ses.tx == nil {
		return fmt.Errorf("%w: a change outside a transaction", ErrMalformed)
	}
	rel, err := ses.routesOf(relationID)
	if err != nil {
		return err
	}
	width := len(rel.message.Columns)
	row, err := tuple(newTuple, width)
	if err != nil {
		return err
	}
	old, err := tuple(oldTuple, width)
	if err != nil {
		return err
	}
	ses.s.stats.Changes.Add(1)
	for _, id := range rel.unnamed {
		ses.buffer.scan(id)
	}
	if row == nil && old == nil {
		return fmt.Errorf("%w: a delete without a key", ErrMalformed)
	}
	for _, r := range rel.routes {
		r.change(ses.tx, row, old, insert, ses.buffer)
	}
	for _, r := range rel.joined {
		r.change(ses.tx, row, old, insert, ses.buffer)
	}
	return nil
}

// routesOf returns the routes of a relation. It computes them again after the pipelines changed.
func (ses *session) routesOf(id uint32) (*relation, error) {
	rel, ok := ses.relations[id]
	if !ok {
		return nil, fmt.Errorf("%w: a change of relation %d, which was not announced", ErrMalformed, id)
	}
	table := ses.s.routes.Load()
	if ses.routes != table {
		// Relations that no longer change, such as old partitions, must not keep old pipelines in memory.
		for _, other := range ses.relations {
			other.routed, other.routes, other.joined, other.unnamed = false, nil, nil, nil
		}
		ses.routes = table
	}
	if rel.routed {
		return rel, nil
	}
	rel.routed = true
	seen := map[lead]bool{}
	for _, oid := range rel.oids {
		for _, l := range (*table)[oid] {
			if seen[l] {
				continue
			}
			seen[l] = true
			if l.join > 0 {
				if r := newJoined(l.Pipeline, l.join, rel.message); r != nil {
					rel.joined = append(rel.joined, r)
					continue
				}
			} else if r := newRoute(l.Pipeline, rel.message); r != nil {
				rel.routes = append(rel.routes, r)
				continue
			}
			rel.unnamed = append(rel.unnamed, l.ID)
		}
	}
	return rel, nil
}

func (ses *session) commit(m *pglogrepl.CommitMessage) error {
	if ses.tx == nil {
		return fmt.Errorf("%w: a commit without a begin", ErrMalformed)
	}
	if ses.replayed {
		ses.s.stats.Replayed.Add(1)
	}
	ses.tx, ses.replayed = nil, false
	ses.s.stats.Transactions.Add(1)
	ses.pos.received = max(ses.pos.received, m.TransactionEndLSN)
	ses.s.stats.ReceivedLSN.Store(uint64(ses.pos.received))
	ses.buffer.commit(m.TransactionEndLSN, false)
	return nil
}

// truncate requests a scan: the WAL does not name the removed rows, and there may be millions.
func (ses *session) truncate(m *pglogrepl.TruncateMessage) error {
	if ses.replayed {
		return nil
	}
	for _, id := range m.RelationIDs {
		rel, err := ses.routesOf(id)
		if err != nil {
			return err
		}
		ses.scanAll(rel, id)
	}
	return nil
}

// scanAll requests a scan of every pipeline of a relation: of all rows, or of the given partition.
func (ses *session) scanAll(rel *relation, partition ...uint32) {
	for _, r := range rel.routes {
		if r.pipeline.Partitioned {
			ses.buffer.scan(r.pipeline.ID, partition...)
		} else {
			ses.buffer.scan(r.pipeline.ID)
		}
	}
	for _, r := range rel.joined {
		ses.buffer.scan(r.pipeline.ID)
	}
	for _, id := range rel.unnamed {
		ses.buffer.scan(id)
	}
}

// relation records an announced table and finds the partitioned tables above it.
func (ses *session) relation(ctx context.Context, m *pglogrepl.RelationMessage) error {
	rows, _ := ses.s.o.DB.Query(ctx, sqlfiles.Query("find_partitioned"), pgx.StrictNamedArgs{"table": m.RelationID})
	var (
		oid, above = uint32(0), []uint32(nil)
		of, unseen = []int32(nil), []int32(nil)
	)
	_, err := pgx.ForEachRow(rows, []any{&oid, &of}, func() error {
		above, unseen = append(above, oid), append(unseen, of...)
		return nil
	})
	if err == nil {
		err = ses.buffer.note(ctx, ses.s.o.DB, m.RelationID, unseen)
	}
	if err != nil {
		return fmt.Errorf("find the partitioned table of %s.%s: %w", m.Namespace, m.RelationName, err)
	}
	// The mark is held up by a lock, and only this process knows of it. The scan waits for the lock, marks the
	// partition, and survives a restart.
	for _, id := range ses.buffer.unnoted()[m.RelationID] {
		ses.buffer.scan(id, m.RelationID)
	}
	ses.announced(m, above)
	return nil
}

// announced records a relation with the partitioned tables above it.
func (ses *session) announced(m *pglogrepl.RelationMessage, above []uint32) {
	ses.relations[m.RelationID] = &relation{message: m, oids: append(above, m.RelationID)}
}

func (ses *session) logicalMessage(ctx context.Context, m *pglogrepl.LogicalDecodingMessage) {
	switch {
	case m.Transactional && m.Prefix == walmsg.HintPrefix && ses.tx != nil && !ses.replayed:
		ses.hinted(ctx, m.Content)
	case m.Transactional || ses.tx != nil:
	case m.Prefix == walmsg.Wait:
		ses.waitedFor(m.LSN)
		ses.gather(ctx)
	case m.Prefix == walmsg.Ask && ses.s.o.Asked != nil:
		ses.s.o.Asked(m.Content, m.LSN < ses.walEnd)
	}
}

// hinted applies a hint of the current transaction's writer, if its signature is valid. Of too many, the rest only ends
// a skip.
func (ses *session) hinted(ctx context.Context, content []byte) {
	const apart = time.Minute
	s, tx := ses.s, ses.tx
	if tx.hints++; tx.hints > database.MostHints { // it, or one after it, may have ended the skip
		tx.skip = false
		return
	}
	h, err := walmsg.ReadHint(s.o.HintKey, content, tx.begin.Xid)
	switch {
	case err != nil || s.o.HintKey == nil:
		if n := s.stats.Forged.Add(1); time.Since(ses.warned) > apart {
			ses.warned = time.Now()
			s.o.Log.WarnContext(ctx, "hints ignored: they were not made by embedsidecar.hint", "hints", n, "xid",
				tx.begin.Xid)
		}
	case h == walmsg.Skip:
		s.stats.Skips.Add(1)
		tx.skip = true
	default:
		tx.hinted, tx.skip, tx.lane = true, false, pipeline.Urgent
		counter := &s.stats.Urgent
		if h == walmsg.Low {
			tx.lane, counter = pipeline.Low, &s.stats.Low
		}
		counter.Add(1)
		ses.buffer.hint(tx.lane)
	}
}

// waitedFor stores the position of a message at once, as an idle position: between transactions, everything before it
// is decoded. Any role may ask. A second request within a few milliseconds waits for the server's next keepalive.
func (ses *session) waitedFor(lsn pglogrepl.LSN) {
	const apart = 5 * time.Millisecond
	if now := time.Now(); now.Sub(ses.hurried) < apart {
		ses.buffer.want(lsn)
	} else {
		ses.hurried = now
		ses.buffer.commit(lsn, true)
	}
	ses.pos.received = max(ses.pos.received, lsn)
}

// stub handles a placeholder for messages that were not passed on because we did not write them. For any other type it
// is unknown what is missing.
func (ses *session) stub(ctx context.Context, data []byte) error {
	const size = 5 // the message type, and the number of messages
	if len(data) != size {
		return fmt.Errorf("%w: a stub of %d bytes", ErrMalformed, len(data))
	}
	if data[0] != 'M' {
		return &gapError{fmt.Sprintf("a message of type %q is too large to be read", data[:1])}
	}
	ses.s.stats.Strange.Add(int64(binary.BigEndian.Uint32(data[1:])))
	ses.gather(ctx)
	return nil
}

// gather pauses briefly when insignificant messages arrive one by one in quick succession: the server and we would wake
// each other for each one. It does not pause if they are rare or if more messages are already waiting: anyone could
// otherwise delay other roles' changes.
func (ses *session) gather(ctx context.Context) {
	const fast, pause = 2 * time.Millisecond, time.Millisecond
	if ses.waited && time.Since(ses.disturbed) < fast {
		sleep.For(ctx, pause)
	}
	ses.disturbed = time.Now()
}
