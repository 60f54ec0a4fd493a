package sidecar

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"

	"github.com/jackc/pgx/v5"
)

// ownersTimeout is how long the stream waits for the source rows of joined rows. After a timeout a scan finds them.
const ownersTimeout = 500 * time.Millisecond

// slowOwners are pipelines with slow owner lookups, which the streams of all pipelines wait for. For a while a scan
// finds their rows instead. So the stream spends at most a twentieth of its time on one pipeline.
type slowOwners struct{ until map[int32]time.Time }

func (s *slowOwners) now(id int32, at time.Time) bool { return at.Before(s.until[id]) }

func (s *slowOwners) note(id int32, began, ended time.Time) {
	const share = 20
	took := ended.Sub(began)
	if took < ownersTimeout/2 { //nolint:mnd // fast enough
		return
	}
	if s.until == nil {
		s.until = map[int32]time.Time{}
	}
	s.until[id] = ended.Add(share * took)
}

// owners is replication.Owners. It looks up rows only once all changes are visible; ADR 17 explains why. If the lookup
// is slow or finds many rows, a scan finds them instead.
func (s *Sidecar) owners(ctx context.Context, changes []queue.Change) (found []queue.Change,
	scans map[int32][]pipeline.Owner, err error,
) {
	type group struct {
		id   int32
		join int
	}
	scans = map[int32][]pipeline.Owner{}
	loaded, _ := s.Pipelines()
	of := map[int32]*pipeline.Pipeline{}
	for i := range loaded {
		of[loaded[i].ID] = &loaded[i]
	}
	var order []group
	joined, xids := map[group][]queue.Change{}, map[uint32]bool{}
	for i := range changes {
		c := changes[i]
		if c.Join == 0 {
			found = append(found, c)
			continue
		}
		xids[c.XID] = true // of each: the first change of a row may be visible before its last
		g := group{c.PipelineID, c.Join}
		if joined[g] == nil {
			order = append(order, g)
		}
		joined[g] = append(joined[g], c)
	}
	visible, err := s.awaitVisible(ctx, xids)
	if err != nil {
		return nil, nil, err
	}
	keys := map[group]map[string][]string{}
	later := func(g group, list ...string) {
		for _, v := range list {
			scans[g.id] = append(scans[g.id], pipeline.Owner{Join: g.join, Values: v})
		}
	}
	for _, g := range order {
		joined[g] = queue.Merge(joined[g]) // a row that is changed all the time may have many owners
		values := lists.Map(joined[g], func(c queue.Change) string { return c.RowKey })
		p := of[g.id]
		switch {
		case p == nil || p.Status != pipeline.Active || g.join > len(p.Links()):
			scans[g.id] = nil // once the pipeline works again, all its rows are compared
		case !visible:
			later(g, values...)
		default:
			var many []string
			if keys[g], many, err = s.ownersOf(ctx, p, p.Links()[g.join-1], values); err != nil {
				return nil, nil, err
			}
			later(g, many...)
		}
	}
	for _, g := range order { // a scan of all rows needs no owners
		if list, there := scans[g.id]; there && (list == nil || slices.ContainsFunc(list,
			func(o pipeline.Owner) bool { return o.Join == 0 })) {
			scans[g.id] = nil
		}
	}
	for _, g := range order {
		for _, c := range joined[g] {
			for _, key := range keys[g][c.RowKey] {
				if len(key) > pipeline.MaxKey {
					s.Stream().TooLong.Add(1)
					continue
				}
				one := c
				one.Join, one.RowKey, one.XID = 0, key, 0
				found = append(found, one)
			}
		}
	}
	return found, scans, nil
}

// ownersOf returns the keys of the source rows by the join values of joined rows, and the values that have too many.
func (s *Sidecar) ownersOf(ctx context.Context, p *pipeline.Pipeline, link pipeline.Link, values []string) (
	keys map[string][]string, many []string, err error,
) {
	keys = make(map[string][]string, len(values))
	var ask []string
	for _, v := range values {
		parts, err := pipeline.SplitKey(v, len(link.Table().On))
		if err != nil { // read before the pipeline's joins changed
			return keys, values, nil
		}
		if key, ok := p.KeyOf(link, parts); ok {
			keys[v] = []string{key}
		} else {
			ask = append(ask, v)
		}
	}
	if len(ask) == 0 || s.o.NoWork || s.slow.now(p.ID, time.Now()) { // a stream-only sidecar may not read rows
		return keys, ask, nil
	}
	began := time.Now()
	found, large, err := rows.New(p, s.o.Pool, rows.Options{}).Owners(ctx, link, ask, ownersTimeout)
	if ctx.Err() != nil {
		return nil, nil, err
	}
	s.slow.note(p.ID, began, time.Now())
	if err != nil { // the scan and the pipeline's state report a problem of the table
		if fault := database.Judge(err); fault == database.Ended || fault == database.Unjudged && database.IsTransient(err) {
			return nil, nil, err
		}
		s.o.Log.WarnContext(ctx, "source rows of joined rows not found: a scan will find them", "pipeline", p.Name,
			"error", err)
		return keys, ask, nil
	}
	for i, v := range ask {
		if large[i] {
			many = append(many, v)
		} else {
			keys[v] = found[i]
		}
	}
	return keys, many, nil
}

// awaitVisible waits briefly for transactions to become visible: they are in the WAL before that.
func (s *Sidecar) awaitVisible(ctx context.Context, ids map[uint32]bool) (visible bool, err error) {
	const longest, short, pause = 200 * time.Millisecond, 5 * time.Millisecond, time.Millisecond
	xids := make([]int64, 0, len(ids))
	for id := range ids {
		xids = append(xids, int64(id))
	}
	limit := longest
	if s.ownersInVain.Load() { // the commit may wait for an unavailable standby
		limit = short
	}
	for deadline := time.Now().Add(limit); ; {
		if err := s.o.Pool.QueryRow(ctx, sqlfiles.Query("visible_xids"),
			pgx.StrictNamedArgs{"xids": xids}).Scan(&visible); err != nil {
			return false, fmt.Errorf("check whether %d transactions are visible: %w", len(xids), err)
		}
		s.ownersInVain.Store(!visible)
		if visible || time.Now().After(deadline) {
			return visible, nil
		}
		if !sleep.For(ctx, pause) {
			return false, ctx.Err()
		}
	}
}
