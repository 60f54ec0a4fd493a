// Package report tells from the tables alone how an installation is doing: it works while no sidecar runs, and what it says is
// measured. An estimate says that it is one.
package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/mark"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// taskCap is where exact counts of tasks end.
const taskCap = 100_000

// exactRows is the estimated size up to which the rows of a source table are counted.
const exactRows = 200_000

// Pipeline is the state of one pipeline.
type Pipeline struct {
	ID            int32    `json:"pipeline_id"`
	Name          string   `json:"name"`
	Slot          string   `json:"slot"`
	Schema        string   `json:"table_schema"` // as the table is called now
	Table         string   `json:"table_name"`
	ReplacedBy    string   `json:"replaced_by,omitempty"` // another table, quoted, that has taken the name which this one is set up under
	Model         string   `json:"model"`
	Plugin        string   `json:"plugin"`
	Generation    int32    `json:"generation"`
	Enabled       bool     `json:"enabled"`
	Status        string   `json:"status"`
	Detail        string   `json:"detail,omitempty"`
	Pending       int64    `json:"pending"`
	Running       int64    `json:"running"`
	Retrying      int64    `json:"retrying"`
	Failed        int64    `json:"failed"`
	OldestSeconds *float64 `json:"oldest_seconds"` // age of the oldest open change; null: none is open
	ScanPhase     string   `json:"scan_phase"`
	ScanReason    string   `json:"scan_reason,omitempty"`
	ScanSeen      int64    `json:"scan_rows_seen"`
	ScanExpected  int64    `json:"scan_rows_expected"`
	Known         int64    `json:"known"` // rows that were looked at and are in the ledger
	Rows          int64    `json:"rows"`
	RowsEstimated bool     `json:"rows_estimated"`
	Coverage      float64  `json:"coverage"` // known of rows, 0 to 1
}

// Slot is the state of one slot.
type Slot struct {
	Name              string  `json:"slot"`
	Publication       string  `json:"publication"`
	Checkpoint        string  `json:"checkpoint"`
	Exists            bool    `json:"exists"`
	Active            bool    `json:"active"`
	WALStatus         string  `json:"wal_status"`
	SafeWALBytes      *int64  `json:"safe_wal_bytes"` // null: no limit is set
	LagBytes          int64   `json:"lag_bytes"`      // server WAL end minus decoded-and-durable
	RetainedBytes     int64   `json:"retained_bytes"` // WAL the slot keeps
	SavedSecondsAgo   float64 `json:"checkpoint_saved_seconds_ago"`
	Holder            string  `json:"holder,omitempty"`
	PublicationExists bool    `json:"publication_exists"`
}

// Status is the state of an installation.
type Status struct {
	Slots     []Slot     `json:"slots"`
	Pipelines []Pipeline `json:"pipelines"`
}

// Read returns the state of the installation in a database.
func Read(ctx context.Context, db queue.DB) (Status, error) {
	var st Status
	var err error
	if st.Slots, err = Slots(ctx, db); err != nil {
		return st, err
	}
	rows, err := db.Query(ctx, sqlfiles.Query("status_pipelines"), pgx.StrictNamedArgs{"cap": taskCap})
	if err != nil {
		return st, fmt.Errorf("read the pipelines: %w", err)
	}
	st.Pipelines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pipeline, err error) {
		var estimate *int64
		err = row.Scan(&p.ID, &p.Name, &p.Slot, &p.Schema, &p.Table, &p.ReplacedBy, &p.Model, &p.Plugin, &p.Generation, &p.Enabled, &p.Status, &p.Detail,
			&p.Pending, &p.Running, &p.Retrying, &p.Failed, &p.OldestSeconds, &p.ScanPhase, &p.ScanReason, &p.ScanSeen, &p.ScanExpected,
			&p.Known, &estimate)
		if estimate != nil {
			p.Rows, p.RowsEstimated = *estimate, true
		}
		return p, err
	})
	if err != nil {
		return st, fmt.Errorf("read the pipelines: %w", err)
	}
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.Status == "active" && p.Rows <= exactRows {
			// A role that may not count gets the estimate.
			if err := db.QueryRow(ctx, "SELECT count(*) FROM "+pgx.Identifier{p.Schema, p.Table}.Sanitize()).Scan(&p.Rows); err == nil {
				p.RowsEstimated = false
			}
		}
		p.Coverage = 1
		if p.Rows == 0 && p.Status != "active" { // nobody could look: an estimate of none is no proof
			p.Coverage = 0
		}
		if p.Rows > 0 {
			p.Coverage = min(1, float64(p.Known)/float64(p.Rows))
		}
	}
	return st, nil
}

// Slots returns the state of every slot that is set up in a database.
func Slots(ctx context.Context, db queue.DB) ([]Slot, error) {
	rows, err := db.Query(ctx, sqlfiles.Query("status_slots"))
	if err != nil {
		return nil, fmt.Errorf("read the slots: %w", err)
	}
	slots, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Slot])
	if err != nil {
		return nil, fmt.Errorf("read the slots: %w", err)
	}
	return slots, nil
}

// CaughtUp is how far a slot's pipelines are with everything before an LSN.
type CaughtUp struct {
	Decoded bool     `json:"decoded"` // all of it is in the queue or done
	Open    int64    `json:"open"`    // tasks for it that are not done
	Scans   int64    `json:"scans"`   // pipelines whose scan is not over
	Altered int64    `json:"altered"` // pipelines whose table was altered and not looked at since; counted when nothing else is left
	Failed  int64    `json:"failed"`  // dead letters for it: not waited for
	Resting []string `json:"resting"` // pipelines that cannot or shall not work now: not waited for
	// Unrouted are pipelines that the streamer does not know yet as they are now: their changes may pass unseen, and a scan will find them.
	Unrouted []string `json:"unrouted"`
}

// Yes tells whether nothing is left to wait for.
func (c CaughtUp) Yes() bool {
	return c.Decoded && c.Open == 0 && c.Scans == 0 && c.Altered == 0 && len(c.Unrouted) == 0
}

// ErrNoSlot means that a slot has no checkpoint here.
var ErrNoSlot = errors.New("no such slot has an LSN checkpoint in this database: run `embedsidecar init` first")

// At asks once. What the WAL does not tell of a table (ALTER TYPE ... USING, a partition that is attached) the catalogue does, and the
// streamer stores what it has seen of that together with its request for a scan: so the catalogue comes first, and then the scans.
func At(ctx context.Context, db queue.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	c, err := at(ctx, db, slot, lsn)
	if err != nil || !c.Yes() {
		return c, err
	}
	altered, err := altered(ctx, db, slot)
	if err != nil {
		return c, err
	}
	c, err = at(ctx, db, slot, lsn)
	c.Altered = altered
	return c, err
}

// altered counts the pipelines of which the catalogue says something else than the streamer has seen.
func altered(ctx context.Context, db queue.DB, slot string) (n int64, err error) {
	rows, err := db.Query(ctx, sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": slot})
	if err != nil {
		return 0, fmt.Errorf("look at the catalogue: %w", err)
	}
	defer rows.Close()
	column := func(name string) int {
		return slices.IndexFunc(rows.FieldDescriptions(), func(f pgconn.FieldDescription) bool { return f.Name == name })
	}
	known, current := column("known"), column("current")
	for rows.Next() {
		if values := rows.RawValues(); !bytes.Equal(values[known], values[current]) { // jsonb: equal content has equal bytes
			n++
		}
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("look at the catalogue: %w", err)
	}
	return n, nil
}

func at(ctx context.Context, db queue.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	var c CaughtUp
	err := db.QueryRow(ctx, sqlfiles.Query("caught_up"), pgx.StrictNamedArgs{"slot": slot, "lsn": lsn.String()}).
		Scan(&c.Decoded, &c.Open, &c.Scans, &c.Failed, &c.Resting, &c.Unrouted)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrNoSlot
	}
	if err != nil {
		return c, fmt.Errorf("ask how far slot %q is: %w", slot, err)
	}
	return c, nil
}

// Now returns an LSN that everything committed before this call lies below, and makes the streamer persist its position as soon as
// it gets there: an idle one otherwise saves itself the write.
func Now(ctx context.Context, db queue.DB) (pglogrepl.LSN, error) {
	var lsn pglogrepl.LSN
	if err := db.QueryRow(ctx, "SELECT pg_logical_emit_message(true, $1::text, ''::text)", mark.Wait).Scan(&lsn); err != nil {
		return 0, fmt.Errorf("ask the streamer to hurry: %w", err)
	}
	return lsn, nil
}

// Wait waits until a slot's pipelines have caught up with an LSN. When ctx ends first it returns how far they are and ctx's error.
func Wait(ctx context.Context, db queue.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	const shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
	asked := false
	for pause := shortest; ; pause = min(2*pause, longest) {
		c, err := At(ctx, db, slot, lsn)
		if err != nil && ctx.Err() == nil || err == nil && c.Yes() {
			return c, err
		}
		if (c.Altered > 0 || len(c.Unrouted) > 0) && !asked {
			_, err := Now(ctx, db) // without it the streamer looks at its next heartbeat
			asked = err == nil
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return c, context.Cause(ctx)
		case <-t.C:
		}
	}
}
