package replication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// routing is what changes are matched with: pipelines by the oid of their table, and of those that are joined to it.
type routing map[uint32][]lead

// SetPipelines replaces what changes are matched with. Every pipeline of the slot must be among them, also one that
// is disabled or cannot work: its changes wait in the queue. A table that somebody locks at this moment tells
// nothing: what was known of it holds.
//
// Nobody may rely on it before Acknowledge has said so: routes first, then the scan for what passed before.
func (s *Stream) SetPipelines(pipelines []pipeline.Pipeline) {
	known := map[int32]*pipeline.Pipeline{}
	for _, p := range s.routes.Load().pipelines() {
		known[p.ID] = p
	}
	routes := routing{}
	for i := range pipelines {
		p := &pipelines[i]
		if before := known[p.ID]; before != nil && p.Status == pipeline.Locked && before.OID == p.OID &&
			before.Generation == p.Generation {
			p = before
		}
		routes[p.OID] = append(routes[p.OID], lead{p, 0})
		for n, link := range p.Links() {
			oid := link.Table().OID
			routes[oid] = append(routes[oid], lead{p, n + 1})
		}
	}
	s.routes.Store(&routes)
}

// pipelines returns what a routing leads to, by number.
func (r *routing) pipelines() []*pipeline.Pipeline {
	return slices.SortedFunc(func(yield func(*pipeline.Pipeline) bool) {
		for list := range maps.Values(*r) {
			for _, l := range list {
				if l.join == 0 && !yield(l.Pipeline) {
					return
				}
			}
		}
	}, func(a, b *pipeline.Pipeline) int { return cmp.Compare(a.ID, b.ID) })
}

// definition is a digest of what changes of a pipeline's table are judged by, and what the catalogue may change
// without init: the generation does not tell of that. The key is not part of it: without the one that was set up no
// change is judged at all, each asks for a scan.
func definition(p *pipeline.Pipeline) []byte {
	parts := []any{p.OID, p.WatchAll, p.Watched, p.IntoColumn}
	if len(p.Joins) > 0 { // others have the digest that they had before there were joins
		parts = append(parts, p.Joins)
	}
	body, err := json.Marshal(parts)
	if err != nil {
		panic(err) // numbers and strings
	}
	sum := sha256.Sum256(body)
	return sum[:]
}

// Acknowledge tells everybody which definition of each pipeline changes are matched with, and asks for a scan of
// those whose definition nobody had acknowledged: what happened to their tables until now went unseen, or was judged
// by what no longer holds. What is to be scanned is found by comparing with what is stored, under the epoch, so it
// outlives anyone who finds it. Without the slot it does nothing: anyone who takes the slot acknowledges. It returns
// ErrHeld if some pipelines are left for later.
func (s *Stream) Acknowledge(ctx context.Context) error {
	epoch := s.epoch.Load()
	a := s.acknowledgement(epoch)
	if epoch == 0 || s.acknowledged.Load() == a.sum() {
		return nil
	}
	return skipping(func(skip bool) error { return s.acknowledgeOnce(ctx, a, skip) })
}

// ErrHeld means that somebody, as an operator with an open transaction, holds the scans that pipelines need before they
// can be acknowledged. All others were.
var ErrHeld = errors.New("another session holds the scans of pipelines: they are acknowledged later")

// skipping calls f, which loses against locks. Then it is called again, to leave for later what is locked.
func skipping(f func(skip bool) error) error {
	err := f(false)
	if database.LockedOut(err) {
		return f(true)
	}
	return err
}

func (s *Stream) acknowledgeOnce(ctx context.Context, a acknowledgement, skip bool) error {
	tx, err := s.o.DB.Begin(ctx)
	if err != nil {
		return fmt.Errorf("acknowledge pipelines: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	var lsn string
	err = tx.QueryRow(ctx, sqlfiles.Query("save_checkpoint"), pgx.StrictNamedArgs{
		"slot": s.o.Slot, "epoch": a.Epoch, "since": "0/0",
		"lsn": nil,
	}).Scan(&lsn)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the session learns that it was cut off, and anyone who cut it off acknowledges
	}
	if err != nil {
		return fmt.Errorf("acknowledge pipelines: %w", err)
	}
	ids, held, err := s.acknowledge(ctx, tx, a, skip)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("acknowledge pipelines: %w", err)
	}
	s.o.Queue.Wake(ids...)
	if held > 0 {
		return ErrHeld
	}
	s.acknowledged.Store(a.sum())
	return nil
}

// acknowledgement is what Acknowledge says: arrays of one length, one element per pipeline.
type acknowledgement struct {
	Epoch       int64
	IDs         []int32
	Generations []int32
	Definitions [][]byte
}

func (s *Stream) acknowledgement(epoch int64) acknowledgement {
	a := acknowledgement{Epoch: epoch, IDs: []int32{}, Generations: []int32{}, Definitions: [][]byte{}}
	for _, p := range s.routes.Load().pipelines() {
		a.IDs, a.Generations, a.Definitions = append(a.IDs, p.ID), append(a.Generations, p.Generation),
			append(a.Definitions, definition(p))
	}
	return a
}

func (a acknowledgement) sum() string {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // numbers and strings
	}
	return string(body)
}

// acknowledge is Acknowledge inside a transaction that has proven the epoch. It returns the pipelines that it has
// asked a scan of, and how many are held: with skip they are left for later, else it loses against their locks.
func (s *Stream) acknowledge(ctx context.Context, tx pgx.Tx, a acknowledgement, skip bool) (unseen []int32, held int64,
	err error,
) {
	err = tx.QueryRow(ctx, sqlfiles.Query("acknowledge_routes"), pgx.StrictNamedArgs{
		"slot": s.o.Slot, "epoch": a.Epoch, "pipeline_ids": a.IDs, "generations": a.Generations,
		"definitions": a.Definitions, "skip": skip,
	}).Scan(&unseen, &held)
	if err != nil {
		return nil, 0, fmt.Errorf("acknowledge %d pipelines: %w", len(a.IDs), err)
	}
	if len(unseen) == 0 {
		return nil, held, nil
	}
	s.o.Log.InfoContext(ctx, "pipelines new to the stream", "slot", s.o.Slot, "pipeline_ids", unseen, "epoch", a.Epoch)
	return unseen, held, queue.RequestScan(ctx, tx, "new to the stream", unseen)
}
