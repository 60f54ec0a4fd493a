package replication

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// catalogueRow is what the catalogue says of one pipeline's table.
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
	Version           string // of the pipeline's own row
	ScanAsked         bool   // a scan waits to begin
}

// watchCatalogue looks at the catalogue once per heartbeat, and when somebody waits: some changes of a table send nothing through the slot.
func (s *Stream) watchCatalogue(ctx context.Context) error {
	var versions map[int32]string
	for {
		var err error
		if versions, err = s.lookAtCatalogue(ctx, versions); err != nil {
			return err
		}
		beat := time.NewTimer(s.o.Heartbeat)
		select {
		case <-ctx.Done():
			beat.Stop()
			return ctx.Err()
		case <-s.look:
			beat.Stop()
		case <-beat.C:
		}
	}
}

// lookAtCatalogue compares tables, publication and pipelines with what they were. It returns the versions of the pipelines there
// are; before is what it returned last, nil at first.
func (s *Stream) lookAtCatalogue(ctx context.Context, before map[int32]string) (map[int32]string, error) {
	asking, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("the heartbeat took over 30s"))
	defer cancel()
	rows, err := s.o.DB.Query(asking, sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": s.o.Slot})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c catalogueRow, err error) {
		err = row.Scan(&c.PipelineID, &c.Status, &c.Known, &c.TableExists, &c.TableSchema, &c.TableName, &c.Current,
			&c.PublicationExists, &c.SamePublication, &c.Published, &c.Version, &c.ScanAsked)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	changed, versions := false, map[int32]string{}
	for _, c := range all {
		switch {
		case !c.PublicationExists:
			return nil, &gapError{"the publication is missing"}
		case !c.SamePublication:
			return nil, &gapError{"the publication was dropped and made again"}
		}
		moved, err := s.noteCatalogue(asking, c)
		if err != nil {
			return nil, err
		}
		changed = changed || moved || c.ScanAsked
		versions[c.PipelineID] = c.Version
	}
	if !maps.Equal(before, versions) { // the first look of a session counts as a change
		changed = true
	}
	if changed && s.o.OnCatalogue != nil {
		s.o.OnCatalogue()
	}
	return versions, nil
}

// noteCatalogue stores what changed about a table and asks for a scan, which finds whatever the WAL did not tell.
func (s *Stream) noteCatalogue(ctx context.Context, c catalogueRow) (changed bool, err error) {
	status, detail := c.Status, ""
	switch {
	case !c.TableExists:
		status, detail = string(pipeline.Missing), "the source table was dropped"
	case !c.Published:
		status, detail = string(pipeline.Unpublished), "the publication does not send all changes of the source table: as its owner, run `embedsidecar init`"
	case c.Status == string(pipeline.Missing), c.Status == string(pipeline.Unpublished):
		status = string(pipeline.Active)
	}
	if status == c.Status && bytes.Equal(c.Known, c.Current) {
		return false, nil
	}
	tx, err := s.o.DB.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, sqlfiles.Query("note_catalogue"), pgx.StrictNamedArgs{
		"pipeline_id": c.PipelineID, "status": status, "detail": detail, "catalogue": c.Current,
		"table_schema": c.TableSchema, "table_name": c.TableName,
	})
	if err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	if c.TableExists {
		if err := queue.RequestScan(ctx, tx, "the table was changed", []int32{c.PipelineID}); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return false, fmt.Errorf("note a changed table: %w", err)
	}
	if c.TableExists {
		s.stats.CatalogueScans.Add(1) // not before: whoever sees it may rely on the scan being asked for
	}
	s.o.Log.InfoContext(ctx, "table changed", "table", c.TableSchema+"."+c.TableName, "pipeline_id", c.PipelineID, "status", status)
	s.o.Queue.Wake(c.PipelineID)
	return true, nil
}
