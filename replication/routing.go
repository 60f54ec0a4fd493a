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

// routing holds the pipelines that changes are matched with, by the oid of their source table and of each joined table.
type routing map[uint32][]lead

// SetPipelines replaces the pipelines that changes are matched with. The list must contain every pipeline of the slot,
// including disabled and broken ones: their changes wait in the queue. If a table is locked and cannot be read, the
// stream keeps what it knew of it.
//
// The new routes take effect once StoreRoutes returns. Set the routes first, then scan for earlier changes.
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

// pipelines returns the pipelines of a routing, ordered by ID.
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

// definition is a digest of the parts of a pipeline that decide how its changes are matched and that can change in the
// catalog without init; the generation does not cover them. The key is left out: if the configured key is missing, no
// change is matched and each one requests a scan.
func definition(p *pipeline.Pipeline) []byte {
	parts := []any{p.OID, p.WatchAll, p.Watched, p.IntoColumn}
	if len(p.Joins) > 0 { // keeps the digest of pipelines without joins unchanged
		parts = append(parts, p.Joins)
	}
	body, err := json.Marshal(parts)
	if err != nil {
		panic(err) // numbers and strings
	}
	sum := sha256.Sum256(body)
	return sum[:]
}

// StoreRoutes stores the definition that changes of each pipeline are matched with. It requests a scan for pipelines
// whose stored definition differs: their earlier changes were not seen, or were matched by an outdated definition. The
// comparison runs in the database under the epoch, so a crash does not lose the scan request. Without the slot it does
// nothing: the process that takes the slot stores them. It returns ErrHeld if some pipelines are left for later.
func (s *Stream) StoreRoutes(ctx context.Context) error {
	epoch := s.epoch.Load()
	a := s.routeRows(epoch)
	if epoch == 0 || s.routesStored.Load() == a.sum() {
		return nil
	}
	return skipping(func(skip bool) error { return s.storeRoutesOnce(ctx, a, skip) })
}

// ErrHeld means that another session, such as an operator's open transaction, locks the scans of some pipelines. The
// other pipelines' routes were stored.
var ErrHeld = errors.New("another session holds the scans of pipelines: their routes are stored later")

// skipping calls f. If f fails on a lock, it calls f again with skip, to leave locked pipelines for later.
func skipping(f func(skip bool) error) error {
	err := f(false)
	if database.LockedOut(err) {
		return f(true)
	}
	return err
}

func (s *Stream) storeRoutesOnce(ctx context.Context, a routeRows, skip bool) error {
	tx, err := s.o.DB.Begin(ctx)
	if err != nil {
		return fmt.Errorf("store routes: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	var lsn string
	err = tx.QueryRow(ctx, sqlfiles.Query("save_checkpoint"), pgx.StrictNamedArgs{
		"slot": s.o.Slot, "epoch": a.Epoch, "since": "0/0",
		"lsn": nil,
	}).Scan(&lsn)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the session notices the lost epoch, and the new holder stores its routes
	}
	if err != nil {
		return fmt.Errorf("store routes: %w", err)
	}
	ids, held, err := s.storeRoutes(ctx, tx, a, skip)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("store routes: %w", err)
	}
	s.o.Queue.Wake(ids...)
	if held > 0 {
		return ErrHeld
	}
	s.routesStored.Store(a.sum())
	return nil
}

// routeRows is what StoreRoutes stores: arrays of equal length with one element per pipeline.
type routeRows struct {
	Epoch       int64
	IDs         []int32
	Generations []int32
	Definitions [][]byte
}

func (s *Stream) routeRows(epoch int64) routeRows {
	a := routeRows{Epoch: epoch, IDs: []int32{}, Generations: []int32{}, Definitions: [][]byte{}}
	for _, p := range s.routes.Load().pipelines() {
		a.IDs, a.Generations, a.Definitions = append(a.IDs, p.ID), append(a.Generations, p.Generation),
			append(a.Definitions, definition(p))
	}
	return a
}

func (a routeRows) sum() string {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // numbers and strings
	}
	return string(body)
}

// storeRoutes is StoreRoutes inside a transaction that has checked the epoch. It returns the pipelines for which it
// requested a scan, and how many are locked by other sessions. With skip these are left for later; otherwise it fails
// on their locks.
func (s *Stream) storeRoutes(ctx context.Context, tx pgx.Tx, a routeRows, skip bool) (unseen []int32, held int64,
	err error,
) {
	err = tx.QueryRow(ctx, sqlfiles.Query("store_routes"), pgx.StrictNamedArgs{
		"slot": s.o.Slot, "epoch": a.Epoch, "pipeline_ids": a.IDs, "generations": a.Generations,
		"definitions": a.Definitions, "skip": skip,
	}).Scan(&unseen, &held)
	if err != nil {
		return nil, 0, fmt.Errorf("store routes of %d pipelines: %w", len(a.IDs), err)
	}
	if len(unseen) == 0 {
		return nil, held, nil
	}
	s.o.Log.InfoContext(ctx, "pipelines new to the stream", "slot", s.o.Slot, "pipeline_ids", unseen, "epoch", a.Epoch)
	return unseen, held, queue.RequestScan(ctx, tx, "new to the stream", unseen)
}
