// Package report tells from the tables alone how an installation is doing: it works while no sidecar runs, and what
// it says is measured. An estimate says that it is one.
package report

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// exactRows is the estimated size up to which the rows of a source table are counted.
const exactRows = 200_000

// Pipeline is the state of one pipeline.
type Pipeline struct {
	ID     int32  `json:"pipeline_id"`
	Name   string `json:"name"`
	Slot   string `json:"slot"`
	Schema string `json:"table_schema"` // as the table is called now
	Table  string `json:"table_name"`
	// another table, quoted, that has taken the name which this one is set up under
	ReplacedBy    string             `json:"replaced_by,omitempty"`
	Dropped       bool               `json:"dropped,omitempty"` // the table is gone
	Model         string             `json:"model"`
	Plugin        string             `json:"plugin"`
	Generation    int32              `json:"generation"`
	State         health.Code        `json:"state"`
	Reason        string             `json:"reason"`          // why that is its state, in one sentence
	Hints         []string           `json:"hints,omitempty"` // what to do about it
	Enabled       bool               `json:"enabled"`
	Active        pipeline.Hours     `json:"active,omitempty"` // when it works; absent: always
	Closed        bool               `json:"outside_hours"`
	Status        string             `json:"status"` // whether it fits its table, as was last found
	Detail        string             `json:"detail,omitempty"`
	Pending       int64              `json:"pending"`
	Running       int64              `json:"running"`
	Retrying      int64              `json:"retrying"`
	Failed        int64              `json:"failed"`
	Cancelled     int64              `json:"cancelled"`      // somebody took them out of the queue
	OldestSeconds *float64           `json:"oldest_seconds"` // age of the oldest open change; null: none is open
	ScanPhase     string             `json:"scan_phase"`
	ScanBlockers  []database.Blocker `json:"scan_waits_for,omitempty"` // open transactions that must end before it begins
	Aside         int64              `json:"set_aside,omitempty"`      // changes that cannot be queued, for a lock
	Holders       []database.Blocker `json:"queue_held_by,omitempty"`  // open transactions that may hold it
	ScanReason    string             `json:"scan_reason,omitempty"`
	ScanSeen      int64              `json:"scan_rows_seen"`
	ScanExpected  int64              `json:"scan_rows_expected"`
	ScanRate      float64            `json:"scan_rows_per_second"`
	ScanLeft      float64            `json:"scan_seconds_left,omitempty"` // about; absent: not known
	// rows whose vector is that of their text now, for all that is known
	Known int64 `json:"known"`
	// of all sidecars together, of late: up to about ten seconds ago
	Speed speed.Speed `json:"speed"`
	// until nothing is left to do, about: of the scan while there is one, else of what is open; absent: not known
	SecondsLeft float64 `json:"seconds_left,omitempty"`
	// more rows wait than are counted: it takes seconds_left at least
	AtLeast bool `json:"seconds_left_at_least,omitempty"`
	// that embedders saw for it, up to about a minute ago
	Tokens        int64 `json:"tokens_embedded"`
	Saved         Saved `json:"saved"`
	Rows          int64 `json:"rows"`
	RowsEstimated bool  `json:"rows_estimated"`
	// known of rows, 0 to 1; null: unknown, as changes may have been missed
	Coverage *float64 `json:"coverage"`

	// paused by the switch over all; by its own name
	allPaused, itselfPaused bool

	scanFirst, unrouted bool
	// changes may have been missed: until the scan has ended; until the slot is made anew
	scanGap, slotGap bool
	looked           bool   // at the table itself: Rows is no leftover of the last ANALYZE
	scanBarrier      string // of a scan that waits for open transactions
}

// Health is the state of the pipeline.
func (p *Pipeline) Health() health.State {
	return health.State{Code: p.State, Reason: p.Reason, WayOut: strings.Join(p.Hints, "; ")}
}

// Open is how many rows wait, are being embedded, or are to be tried again.
func (p *Pipeline) Open() int64 { return p.Pending + p.Running + p.Retrying }

// Slot is the state of one slot.
type Slot struct {
	Name              string  `json:"slot"`
	Publication       string  `json:"publication"`
	Checkpoint        string  `json:"checkpoint"`
	Exists            bool    `json:"exists"`
	Active            bool    `json:"active"`
	Making            bool    `json:"making"` // it is being made: the server waits for every open transaction
	WALStatus         string  `json:"wal_status"`
	SafeWALBytes      *int64  `json:"safe_wal_bytes"` // null: no limit is set
	LagBytes          int64   `json:"lag_bytes"`      // server WAL end minus decoded-and-durable
	RetainedBytes     int64   `json:"retained_bytes"` // WAL the slot keeps
	SavedSecondsAgo   float64 `json:"checkpoint_saved_seconds_ago"`
	Holder            string  `json:"holder,omitempty"`
	PublicationExists bool    `json:"publication_exists"`
	// changes that needed no look of their own, up to about a minute ago: they touched no text, or joined one that waited
	ChangesUnchanged int64 `json:"changes_unchanged"`
	ChangesJoined    int64 `json:"changes_joined"`
	OtherServer      bool  `json:"other_server"` // it was set up on another one: the data was restored or copied
	// the database of this server whose slot it is, if that is another
	Elsewhere string `json:"elsewhere,omitempty"`
	Database  string `json:"-"` // this one
	// Blockers are the transactions that the making of the slot waits for.
	Blockers []database.Blocker `json:"waits_for,omitempty"`
}

// Sidecar is one that runs, with what it says of itself.
type Sidecar struct {
	ID             int64                    `json:"worker_id"`
	Slot           string                   `json:"slot"`
	Instance       string                   `json:"instance"`
	Version        string                   `json:"version"`
	Stream         health.Stream            `json:"stream"`
	StreamDetail   string                   `json:"stream_detail,omitempty"`
	Problems       map[int32]health.Problem `json:"problems,omitempty"` // by pipeline
	SeenSecondsAgo float64                  `json:"seen_seconds_ago"`
	Processed      int64                    `json:"processed_24h"` // rows, up to about a minute ago: of these
	Succeeded      int64                    `json:"succeeded_24h"`
	GivenUp        int64                    `json:"failed_24h"`    // became dead letters
	LastBatchAt    *time.Time               `json:"last_batch_at"` // null: there was none
	Speeds         map[int32]speed.Speed    `json:"speeds"`        // by pipeline, of those that it works now
}

// Status is the state of an installation.
type Status struct {
	Slots     []Slot     `json:"slots"`
	Sidecars  []Sidecar  `json:"sidecars"`
	Pipelines []Pipeline `json:"pipelines"`
}

// Options say how hard to look.
type Options struct {
	// CountUpTo is the number of rows up to which a table is counted; larger ones are estimated. 0: 200,000; below 0:
	// none is, and neither is what is known of them: nobody asks for the coverage.
	CountUpTo int64
	// Counts remembers how many rows are known, for who reads again and again; nil: they are counted now.
	Counts *Counts
	// Uncovered leaves Known and Coverage at 0: to read a large ledger takes longer than everything else. Counts.Cover
	// fills them in.
	Uncovered bool
	// Loaded are pipelines as the catalogue has them now. While no sidecar runs what was stored of them may be old.
	Loaded []pipeline.Pipeline
	// AtOnce: who asks again and again does not wait for a slot to be taken over.
	AtOnce bool
}

// takeOver is how long a slot may be nobody's while sidecars run: who stands by tries every 3 s, who was cut off
// sooner.
const takeOver = 5 * time.Second

// tables is what a report asks of a database. This file judges what is read; server reads it, which is tried on a real
// one in package sidecar, and tests of judgements have one in memory.
type tables interface {
	states(ctx context.Context) ([]slot.State, error)
	sidecars(ctx context.Context) ([]Sidecar, error)
	pipelines(ctx context.Context) ([]Pipeline, error)
	// blockers are the open transactions that a scan with such a barrier waits for, or the making of a slot: "".
	blockers(ctx context.Context, barrier string) ([]database.Blocker, error)
	// holders are the open transactions that may hold what the queue needs.
	holders(ctx context.Context) ([]database.Blocker, error)
	// plan is how a table would be read, in JSON.
	plan(ctx context.Context, table string) (string, error)
	// rows counts the rows of a table, up to so many.
	rows(ctx context.Context, table string, most int64) (int64, error)
	// known counts the rows of a pipeline that have the vector of their text now, for all that is known.
	known(ctx context.Context, p *Pipeline) (int64, error)
}

// Read returns the state of the installation in a database.
func Read(ctx context.Context, db database.DB) (Status, error) { return Options{}.Read(ctx, db) }

// Read returns the state of the installation in a database.
func (o Options) Read(ctx context.Context, db database.DB) (Status, error) {
	return o.read(ctx, server{db})
}

func (o Options) read(ctx context.Context, db tables) (Status, error) {
	if o.CountUpTo == 0 {
		o.CountUpTo = exactRows
	}
	st, err := o.settled(ctx, func() (st Status, err error) {
		if st.Slots, err = slots(ctx, db); err == nil {
			st.Sidecars, err = db.sidecars(ctx)
		}
		return st, err
	})
	if err != nil {
		return st, err
	}
	if st.Pipelines, err = db.pipelines(ctx); err != nil {
		return st, err
	}
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.scanBarrier != "" {
			if p.ScanBlockers, err = db.blockers(ctx, p.scanBarrier); err != nil {
				return st, err
			}
		}
		if p.Aside > 0 {
			if p.Holders, err = db.holders(ctx); err != nil {
				return st, err
			}
		}
		o.refresh(p, st.streams(p.Slot))
		if p.Status == string(pipeline.Active) {
			p.count(ctx, db, o.CountUpTo)
		}
		p.slotGap = st.mayMiss(p.Slot)
		if o.CountUpTo >= 0 && !o.Uncovered {
			if err := o.Counts.cover(ctx, db, p); err != nil {
				return st, err
			}
		}
		st.judge(p)
	}
	return st, nil
}

// settled looks until no slot is about to be taken over, or for as long as that takes.
func (o Options) settled(ctx context.Context, look func() (Status, error)) (Status, error) {
	const pause = 200 * time.Millisecond
	for began := time.Now(); ; {
		st, err := look()
		if err != nil || o.AtOnce || !st.changesHands() || time.Since(began) > takeOver {
			return st, err
		}
		if !sleep.For(ctx, pause) {
			return st, ctx.Err()
		}
	}
}

// judge says in which state a pipeline is, and how long its scan takes, when all else is known of it.
func (st *Status) judge(p *Pipeline) {
	if p.ScanExpected == 0 { // the server had no estimate yet when the scan began
		p.ScanExpected = p.Rows
	}
	f := st.facts(p)
	p.ScanLeft = f.Scan.Left().Seconds()
	s := health.Of(f)
	p.State, p.Reason, p.Hints = s.Code, s.Reason, s.Hints()
	p.Speed = speed.Speed{}
	for i := range st.Sidecars {
		p.Speed = p.Speed.Add(st.Sidecars[i].Speeds[p.ID])
	}
	p.SecondsLeft = p.left()
	p.AtLeast = p.SecondsLeft > 0 && !p.scans() && p.Capped()
}

// mayMiss reports whether changes of a slot are not known: it is gone, it is of another database, or it is behind and
// nobody streams.
func (st *Status) mayMiss(name string) bool {
	return slices.ContainsFunc(st.Slots, func(s Slot) bool {
		return s.Name == name && (!s.Exists || s.Making || s.WALStatus == "lost" || s.OtherServer || s.Elsewhere != "" ||
			!s.Active && s.LagBytes > 0)
	})
}

// streams reports whether a sidecar runs that streams a slot, or would.
func (st *Status) streams(slot string) bool {
	return slices.ContainsFunc(st.Sidecars, func(s Sidecar) bool { return s.Slot == slot })
}

// changesHands reports whether nobody holds a slot that a sidecar says it reads, or is about to.
func (st *Status) changesHands() bool {
	return slices.ContainsFunc(st.Slots, func(slot Slot) bool {
		return slot.Exists && !slot.Active && slot.WALStatus != "lost" && slices.ContainsFunc(st.Sidecars,
			func(s Sidecar) bool {
				return s.Slot == slot.Name && slices.Contains([]health.Stream{health.Streaming, health.Starting, health.Standby},
					s.Stream)
			}) && !slices.ContainsFunc(st.Sidecars, func(s Sidecar) bool {
			return s.Slot == slot.Name &&
				s.Stream == health.Stuck
		})
	})
}

// refresh takes what the catalogue says now where nobody runs who would have stored it.
func (o Options) refresh(p *Pipeline, running bool) {
	at := slices.IndexFunc(o.Loaded, func(l pipeline.Pipeline) bool { return l.ID == p.ID })
	if at >= 0 && !running && o.Loaded[at].Status != pipeline.Locked {
		p.Status, p.Detail = string(o.Loaded[at].Status), o.Loaded[at].Detail
	}
}

// count finds out how many rows the table has: exactly if they are few. The planner's estimate is better than that of
// the last ANALYZE, of which there may be none yet.
func (p *Pipeline) count(ctx context.Context, db tables, upTo int64) {
	table := database.Quote(p.Schema, p.Table)
	plan, err := db.plan(ctx, table)
	if err != nil {
		return // a role that may not look gets the estimate of the last ANALYZE
	}
	p.looked = true
	if rows, ok := planned(plan); ok {
		p.Rows = rows
	}
	if p.Rows > upTo { // also where nothing is to be counted
		return
	}
	// The estimate may be wrong by orders of magnitude: no more than the limit is read.
	if rows, err := db.rows(ctx, table, upTo+1); err == nil {
		p.counted(rows, upTo)
	}
}

// planned is how many rows a plan in JSON expects.
func planned(text string) (rows int64, ok bool) {
	var plan []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		} `json:"Plan"`
	}
	if err := json.Unmarshal([]byte(text), &plan); err != nil || len(plan) != 1 {
		return 0, false
	}
	return int64(plan[0].Plan.Rows), true
}

// counted notes how many rows there are, of which one more than upTo were counted at most.
func (p *Pipeline) counted(rows, upTo int64) {
	if rows <= upTo {
		p.Rows, p.RowsEstimated = rows, false
		return
	}
	p.Rows = max(p.Rows, rows)
}

// facts are what the state of a pipeline follows from.
func (st *Status) facts(p *Pipeline) health.Facts {
	f := health.Facts{
		Name: p.Name, ID: p.ID, Status: p.Status, Detail: p.Detail, Table: database.Quote(p.Schema, p.Table),
		ReplacedBy: p.ReplacedBy, Dropped: p.Dropped,
		Paused: !p.Enabled, Closed: p.Closed, Active: p.Active, Unacknowledged: p.unrouted, Open: p.Open(),
		Retrying: p.Retrying, Failed: p.Failed,
		Cancelled: p.Cancelled, AllPaused: p.allPaused, PausedNames: st.paused(),
		Scan: health.Scan{
			Phase: p.ScanPhase, Reason: p.ScanReason, First: p.scanFirst, Seen: p.ScanSeen,
			Expected: p.ScanExpected, Rate: p.ScanRate,
		},
	}
	f.Scan.Blockers = database.Named(p.ScanBlockers)
	f.Aside, f.Holders = p.Aside, database.Named(p.Holders)
	for _, s := range st.Slots {
		if s.Name == p.Slot {
			f.Slot = health.Slot{
				Name: s.Name, Publication: s.Publication, Exists: s.Exists, Lost: s.WALStatus == "lost", Active: s.Active,
				Making: s.Making,
				Holder: s.Holder, Published: s.PublicationExists, Blockers: database.Named(s.Blockers), OtherServer: s.OtherServer,
				Elsewhere: s.Elsewhere, Own: database.OwnSlot(s.Database),
			}
		}
	}
	for _, s := range st.Sidecars {
		if s.Slot != p.Slot && s.Slot != "" {
			continue
		}
		f.Sidecars = append(f.Sidecars, health.Sidecar{
			Name: s.Instance, Stream: s.Stream, Detail: s.StreamDetail,
			Problems: s.Problems,
		})
	}
	return f
}

// paused are the names of the pipelines that are paused by their names.
func (st *Status) paused() []string {
	var names []string
	for i := range st.Pipelines {
		if st.Pipelines[i].itselfPaused {
			names = append(names, st.Pipelines[i].Name)
		}
	}
	return names
}

// Slots returns the state of every slot that is set up in a database.
func Slots(ctx context.Context, db database.DB) ([]Slot, error) { return slots(ctx, server{db}) }

func slots(ctx context.Context, db tables) ([]Slot, error) {
	states, err := db.states(ctx)
	if err != nil {
		return nil, err
	}
	slots := make([]Slot, len(states))
	for i := range states {
		slots[i] = slotOf(&states[i])
		if !slots[i].Making {
			continue
		}
		if slots[i].Blockers, err = db.blockers(ctx, ""); err != nil {
			return nil, err
		}
	}
	return slots, nil
}

func slotOf(s *slot.State) Slot {
	told := Slot{
		Name: s.Name, Publication: s.Publication, Checkpoint: s.Checkpoint.String(), Exists: s.Exists, Active: s.Active,
		Making: s.Making(), WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes, LagBytes: s.LagBytes,
		SavedSecondsAgo: s.SavedSecondsAgo, Holder: s.Application, PublicationExists: s.PublicationNow != 0,
		ChangesUnchanged: s.ChangesUnchanged, ChangesJoined: s.ChangesJoined,
		OtherServer: s.OtherServer(s.ServerID), Elsewhere: s.Elsewhere(), Database: s.Here,
	}
	if s.RetainedBytes != nil {
		told.RetainedBytes = *s.RetainedBytes
	}
	return told
}

// FailedRow is a row that could not be embedded, or that failed and will be tried again. It holds no text.
type FailedRow struct {
	Pipeline       string   `json:"pipeline"`
	Key            string   `json:"key"`
	State          string   `json:"state"` // failed, retrying
	Class          string   `json:"class"`
	Code           string   `json:"code"`
	Message        string   `json:"message"`
	Attempt        int32    `json:"attempt"` // tries that failed because of the row itself
	AgeSeconds     float64  `json:"age_seconds"`
	NextTrySeconds *float64 `json:"next_try_seconds"` // null: it is not tried again by itself
}

// Failed returns rows of pipelines that could not be embedded, at most so many of each.
func Failed(ctx context.Context, db database.DB, pipelines []string, limit int) ([]FailedRow, error) {
	return collect(ctx, db, "list rows that failed", pgx.RowToStructByPos[FailedRow], "failed_rows",
		pgx.StrictNamedArgs{"pipelines": pipelines, "max": limit})
}
