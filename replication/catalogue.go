package replication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication/slot"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// catalogueRow is the catalog state of one pipeline's table.
type catalogueRow struct {
	PipelineID        int32
	Status            string
	Known, Current    []byte // jsonb, so equal content has equal bytes
	TableExists       bool
	TableSchema       string
	TableName         string
	PublicationExists bool
	SamePublication   bool
	Published         bool
	Version           string // of everything a running sidecar must reload, such as a pause
	ScanAsked         bool   // a scan was requested and has not begun
	StandbyNames      string // synchronous_standby_names of the server
}

// watch reads the catalog once per heartbeat and after each notification: some table changes do not appear in the slot.
func (ses *session) watch(ctx context.Context) error {
	w := &watcher{s: ses.s, b: ses.buffer, told: ses.told}
	w.pause(ctx, min(time.Second, ses.s.o.Heartbeat)) // until hear listens
	return ses.keepLooking(ctx, w)
}

// hear receives notifications of positions that clients wait for. Any role may send one with any content; the only
// effect is that a position is stored earlier.
func (ses *session) hear(ctx context.Context) error {
	s := ses.s
	line := s.o.Line
	if line == nil {
		line = database.NewLine(s.o.DB, 0)
	}
	for ctx.Err() == nil {
		err := line.Listen(ctx, queue.Waiting, ses.heed)
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "could not listen for notifications", "slot", s.o.Slot, "error", err)
			wait(ctx, min(time.Second, s.o.Heartbeat))
		}
	}
	return ctx.Err()
}

// heed handles a notification.
func (ses *session) heed(payload string) {
	sleep.Wake(ses.told)
	if payload == queue.Requests && ses.s.o.OnRequest != nil {
		ses.s.o.OnRequest()
	}
	if lsn, err := pglogrepl.ParseLSN(payload); err == nil {
		ses.buffer.want(lsn)
	}
}

// lookout reads the catalog, then rests until the next read is due.
type lookout interface {
	look(ctx context.Context) error
	rest(ctx context.Context)
}

// keepLooking calls look until it returns a gap or fails too many times in a row.
func (ses *session) keepLooking(ctx context.Context, w lookout) error {
	const (
		tries = 10 // a failed look ends the session only after repeated failures: the stream itself may be healthy
		pause = time.Second
	)
	s := ses.s
	for failed := 0; ; {
		err := w.look(ctx)
		if gap, ok := errors.AsType[*gapError](err); ok {
			return gap
		}
		if errors.Is(err, errAwaited) {
			return err
		}
		if err == nil {
			failed = 0
			w.rest(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		s.stats.Heartbeats.Add(1)
		if failed++; failed == tries {
			return err
		}
		s.o.Log.WarnContext(ctx, "heartbeat failed", "slot", s.o.Slot, "try", failed, "error", err)
		if !wait(ctx, min(pause, s.o.Heartbeat)) {
			return ctx.Err()
		}
	}
}

// watcher reads the catalog.
type watcher struct {
	s        *Stream
	b        *buffer
	told     chan struct{}    // signals a notification
	versions map[int32]string // of the pipelines, as of the previous look
	late     bool             // the last look could not store all changes
}

// rest waits for a heartbeat or a notification, but at least 20 ms, to limit looks when many notifications arrive.
func (w *watcher) rest(ctx context.Context) {
	const apart = 20 * time.Millisecond
	d := w.s.o.Heartbeat
	if w.late {
		d = min(d, time.Second)
	}
	if wait(ctx, apart) {
		w.pause(ctx, d)
	}
}

func (w *watcher) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-w.told:
	case <-time.After(d):
	}
}

// look compares tables, publication and pipelines with their previous state.
func (w *watcher) look(ctx context.Context) error {
	s := w.s
	asking, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the heartbeat took over 30s"))
	defer cancel()
	select {
	case <-w.told: // this look covers it
	default:
	}
	for partition, pipelines := range w.b.unnoted() {
		if err := w.b.note(asking, s.o.DB, partition, pipelines); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
	}
	const known, current = 2, 6 // column positions in the row
	var all []catalogueRow
	batch := &pgx.Batch{}
	database.KeepPlans(s.o.DB, batch)
	batch.Queue(sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": s.o.Slot, "pipeline": nil}).
		Query(func(rows pgx.Rows) (err error) {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c catalogueRow, err error) {
				err = row.Scan(&c.PipelineID, &c.Status, nil, &c.TableExists, &c.TableSchema, &c.TableName, nil,
					&c.PublicationExists, &c.SamePublication, &c.Published, &c.Version, &c.ScanAsked,
					&c.StandbyNames)
				// For a thousand pipelines these two are megabytes, and usually equal.
				if raw := row.RawValues(); err == nil && (!bytes.Equal(raw[known], raw[current]) || !c.asStored()) {
					marks := make([]any, len(raw)) // nil: not read
					marks[known], marks[current] = &c.Known, &c.Current
					err = row.Scan(marks...)
				}
				return c, err
			})
			return err
		})
	err := s.o.DB.SendBatch(asking, batch).Close()
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	changed, err := w.compare(all, func(c catalogueRow) (changed bool, err error) {
		if changed, err = s.noteCatalogue(asking, s.o.DB, c); err != nil {
			s.o.Log.WarnContext(ctx, "table change not stored yet", "table", c.TableSchema+"."+c.TableName,
				"pipeline_id", c.PipelineID, "error", err)
		}
		return changed, err
	})
	if err == nil && changed && s.o.OnReload != nil {
		s.o.OnReload()
	}
	return err
}

// note marks a partition (note_partition) that the last look did not find, for the pipelines of its table. Pipelines
// whose row is locked are kept for the next look.
func (b *buffer) note(ctx context.Context, db database.Reader, partition uint32, pipelines []int32) error {
	if len(pipelines) == 0 {
		return nil
	}
	locked, err := database.Collect(ctx, db, "note_partition", pgx.RowTo[int32],
		pgx.StrictNamedArgs{"table": partition, "pipeline_ids": pipelines})
	if err != nil {
		locked = pipelines
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late[partition] = locked; len(locked) == 0 {
		delete(b.late, partition)
	}
	return err
}

// unnoted returns the partitions to mark, with their pipelines.
func (b *buffer) unnoted() map[uint32][]int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.late)
}

// compare reports whether anything changed since the previous look; note stores the changes of a table. The first look
// of a session counts as a change. It returns a *gapError if the publication was dropped or replaced, and errAwaited if
// commits may wait for us: perhaps ours do already, and end with the session. A table whose
// note fails on a lock, such as that of an operator's open transaction, is left for a later look.
func (w *watcher) compare(all []catalogueRow, note func(catalogueRow) (changed bool, err error)) (changed bool,
	err error,
) {
	versions := map[int32]string{}
	w.late = false
	for _, c := range all {
		switch {
		case slot.Awaits(c.StandbyNames):
			return false, errAwaited
		case !c.PublicationExists:
			return false, &gapError{"the publication is missing"}
		case !c.SamePublication:
			return false, &gapError{"the publication was dropped and recreated"}
		}
		moved, err := note(c)
		if database.LockedOut(err) {
			w.late, err = true, nil
		}
		if err != nil {
			return false, err
		}
		changed = changed || moved || c.ScanAsked
		versions[c.PipelineID] = c.Version
	}
	changed = changed || w.versions == nil || !maps.Equal(w.versions, versions)
	w.versions = versions
	return changed, nil
}

// errAwaited ends a session. The next one tells why (slot.Awaited).
var errAwaited = errors.New("synchronous_standby_names was changed: commits could wait for the stream")

// lack returns why a pipeline's table cannot be streamed, with a hint; "" if it can.
func (c *catalogueRow) lack() (lack pipeline.Status, detail string) {
	switch {
	case !c.TableExists:
		return pipeline.Missing, "the source table was dropped"
	case !c.Published:
		return pipeline.Unpublished,
			"the publication does not send all changes of the source table, or of one joined to it: as its owner, run " +
				"`embedsidecar init`"
	}
	return "", ""
}

// asStored reports whether the stored state of the table is current. It ignores the other reasons why a pipeline cannot
// work.
func (c *catalogueRow) asStored() bool {
	lack, _ := c.lack()
	known := pipeline.Status(c.Status)
	same := lack == known || lack == "" && known != pipeline.Missing && known != pipeline.Unpublished
	return same && bytes.Equal(c.Known, c.Current)
}

// parts returns the partitions to compare if only partitions differ, and whether no rows were removed. It returns nil
// if all rows must be compared.
func (c *catalogueRow) parts() (changed []uint32, noneGone bool) {
	const storage = "storage"
	var known, current map[string]json.RawMessage
	if json.Unmarshal(c.Known, &known) != nil || json.Unmarshal(c.Current, &current) != nil {
		return nil, false
	}
	var before, now map[uint32]string
	if json.Unmarshal(known[storage], &before) != nil || json.Unmarshal(current[storage], &now) != nil {
		return nil, false
	}
	delete(known, storage)
	delete(current, storage)
	if !maps.EqualFunc(known, current, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		return nil, false
	}
	changed, noneGone = []uint32{}, true
	for relation, mark := range now {
		if was := before[relation]; was != mark { // "": new, its rows were streamed (note_partition)
			changed, noneGone = append(changed, relation), noneGone && was == ""
		}
		delete(before, relation)
	}
	return changed, noneGone && len(before) == 0
}

// noteCatalogue stores what changed about a table and requests a scan, which finds changes that are not in the WAL.
func (s *Stream) noteCatalogue(ctx context.Context, db database.DB, c catalogueRow) (changed bool, err error) {
	if c.asStored() {
		return false, nil
	}
	lack, detail := c.lack()
	tx, err := db.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var same bool // false if a partition was announced since the look
	err = tx.QueryRow(ctx, "SELECT catalogue IS NOT DISTINCT FROM $2 FROM embedsidecar.pipeline WHERE pipeline_id = $1"+
		" FOR UPDATE", c.PipelineID, c.Known).Scan(&same)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !same {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	_, err = tx.Exec(ctx, sqlfiles.Query("note_catalogue"), pgx.StrictNamedArgs{
		"pipeline_id": c.PipelineID, "lack": lack, "detail": detail, "catalogue": c.Current,
		"table_schema": c.TableSchema, "table_name": c.TableName,
	})
	if err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	if c.TableExists {
		r := queue.ScanRequest{Reason: "the table was changed", Pipelines: []int32{c.PipelineID}}
		r.Partitions, r.NoneGone = c.parts()
		if err := r.Send(ctx, tx); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	if c.TableExists {
		s.stats.CatalogueScans.Add(1) // after the commit: a reader of the counter may rely on the scan request
	}
	s.o.Log.InfoContext(ctx, "table changed", "table", c.TableSchema+"."+c.TableName, "pipeline_id", c.PipelineID, "lack",
		lack)
	s.o.Queue.Wake(c.PipelineID)
	return true, nil
}
