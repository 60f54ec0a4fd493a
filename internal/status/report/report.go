// Package report reads the state of an installation from the tables alone, so it works while no sidecar runs. Its
// figures are measured; estimates are marked as such.
package report

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// exactRows is the estimated size up to which the rows of a source table are counted.
const exactRows = 200_000

// Pipeline is the state of one pipeline.
type Pipeline struct {
	ID     int32  `json:"pipeline_id"`
	Name   string `json:"name"`
	Slot   string `json:"slot"`
	Schema string `json:"table_schema"` // the current names of the table
	Table  string `json:"table_name"`
	// another table, quoted, which now has the name that this pipeline was set up with
	ReplacedBy string         `json:"replaced_by,omitempty"`
	Dropped    bool           `json:"dropped,omitempty"` // the table is gone
	Model      string         `json:"model"`
	Plugin     string         `json:"plugin"`
	Generation int32          `json:"generation"`
	State      health.Code    `json:"state"`
	Reason     string         `json:"reason"`          // why it has this state, in one sentence
	Hints      []string       `json:"hints,omitempty"` // what to do about it
	Works      bool           `json:"works"`           // rows are embedded, or would be if there were any
	NeedsAct   bool           `json:"needs_act"`       // the state does not end without a user's action
	Severity   string         `json:"severity"`        // ok, warn, error
	MayMiss    bool           `json:"may_miss"`        // changes may have been missed, or no streamer reads them
	Enabled    bool           `json:"enabled"`
	Active     pipeline.Hours `json:"active,omitempty"` // when it works; absent: always
	Closed     bool           `json:"outside_hours"`
	Budgets    []Budget       `json:"budgets,omitempty"`    // limits and amounts spent; absent: no limit
	BatchJobs  []BatchJob     `json:"batch_jobs,omitempty"` // unfinished jobs
	// number of failed attempts that make a row a dead letter; absent: the setting for all pipelines
	MaxAttempts   int                `json:"max_attempts,omitempty"`
	Labels        pipeline.Labels    `json:"labels,omitempty"`
	Status        string             `json:"status"` // whether it matches its table, as last checked
	Detail        string             `json:"detail,omitempty"`
	Pending       int64              `json:"pending"`
	Running       int64              `json:"running"`
	Retrying      int64              `json:"retrying"`
	Failed        int64              `json:"failed"`
	Cancelled     int64              `json:"cancelled"`           // rows that a user removed from the queue
	OldestSeconds *float64           `json:"oldest_seconds"`      // age of the oldest open change; null: none
	WaitsFor      []database.Blocker `json:"waits_for,omitempty"` // open transactions that the state waits for
	Aside         int64              `json:"set_aside,omitempty"` // changes that a lock keeps from being queued
	ScanPhase     string             `json:"scan_phase"`
	ScanReason    string             `json:"scan_reason,omitempty"`
	ScanSeen      int64              `json:"scan_rows_seen"` // compared, and embedded if they differed
	ScanExpected  int64              `json:"scan_rows_expected"`
	ScanRate      float64            `json:"scan_rows_per_second"`
	ScanLeft      float64            `json:"scan_seconds_left,omitempty"` // approximate; absent: unknown
	// rows whose vector matches their current text, as far as known
	Known int64 `json:"known"`
	// of all sidecars together; may lag by about ten seconds
	Speed speed.Speed `json:"speed"`
	// approximate time until the scan ends or, without a scan, until nothing is open; absent: unknown
	SecondsLeft float64 `json:"seconds_left,omitempty"`
	// more rows wait than were counted, so seconds_left is a lower bound
	AtLeast bool `json:"seconds_left_at_least,omitempty"`
	// tokens seen by embedders; may lag by about a minute
	Tokens int64 `json:"tokens_embedded"`
	Cut    int64 `json:"texts_cut"` // embedded without their ends, because they exceed the model's limit
	Saved  Saved `json:"saved"`
	// approximate, for queries and for texts scored by rerankers; may lag by about a minute
	SearchTokens  int64   `json:"search_tokens"`
	SearchPrice   float64 `json:"search_price"` // price of these tokens; 0: their models have no price
	Rows          int64   `json:"rows"`
	RowsEstimated bool    `json:"rows_estimated"`
	// known / rows, 0 to 1; null: unknown, since changes may have been missed
	Coverage *float64 `json:"coverage"`

	Checkpoint string `json:"-"` // of its slot: the changes before it have been read

	looked bool // the table itself was read or planned, so Rows is not from the last ANALYZE
}

// Health is the state of the pipeline.
func (p *Pipeline) Health() health.State {
	return health.State{Code: p.State, Reason: p.Reason, Hints: p.Hints}
}

// Open returns how many rows wait, are being embedded, or are to be retried.
func (p *Pipeline) Open() int64 { return p.Pending + p.Running + p.Retrying }

// Slot is the state of one slot.
type Slot struct {
	Name              string  `json:"slot"`
	Publication       string  `json:"publication"`
	Checkpoint        string  `json:"checkpoint"`
	Exists            bool    `json:"exists"`
	Active            bool    `json:"active"`
	Making            bool    `json:"making"` // it is being created: the server waits for every open transaction
	WALStatus         string  `json:"wal_status"`
	SafeWALBytes      *int64  `json:"safe_wal_bytes"` // null: no limit is set
	LagBytes          int64   `json:"lag_bytes"`      // end of the server's WAL minus the durable position
	RetainedBytes     int64   `json:"retained_bytes"` // WAL that the slot retains
	SavedSecondsAgo   float64 `json:"checkpoint_saved_seconds_ago"`
	Holder            string  `json:"holder,omitempty"`
	PublicationExists bool    `json:"publication_exists"`
	// changes without processing of their own (no text changed, or joined with a pending one); may lag by about a
	// minute
	ChangesUnchanged int64 `json:"changes_unchanged"`
	ChangesJoined    int64 `json:"changes_joined"`
	// hints from roles that may not give any
	HintsIgnored int64 `json:"hints_ignored"`
	OtherServer  bool  `json:"other_server"` // it was set up on another server: the data was restored or copied
	// the other database of this server that the slot belongs to
	Elsewhere string             `json:"elsewhere,omitempty"`
	WaitsFor  []database.Blocker `json:"waits_for,omitempty"` // transactions that the creation of the slot waits for
	State     health.Code        `json:"state"`               // streaming, or the state it causes for pipelines
	Status    string             `json:"status"`              // ok, warn, error
	Reason    string             `json:"reason"`
	Hints     []string           `json:"hints,omitempty"`

	ChangesHands bool `json:"-"` // a sidecar is about to take it over
}

// Sidecar is a running sidecar, as it describes itself.
type Sidecar struct {
	ID             int64                    `json:"worker_id"`
	Slot           string                   `json:"slot"`
	Instance       string                   `json:"instance"`
	Version        string                   `json:"version"`
	Stream         health.Stream            `json:"stream"`
	StreamDetail   string                   `json:"stream_detail,omitempty"`
	Problems       map[int32]health.Problem `json:"problems,omitempty"` // by pipeline
	SeenSecondsAgo float64                  `json:"seen_seconds_ago"`
	Processed      int64                    `json:"processed_24h"` // rows; may lag by about a minute. Of these:
	Succeeded      int64                    `json:"succeeded_24h"`
	GivenUp        int64                    `json:"failed_24h"`    // became dead letters
	LastBatchAt    *time.Time               `json:"last_batch_at"` // null: no batch yet
	Speeds         map[int32]speed.Speed    `json:"speeds"`        // by pipeline that it works on now
}

// Status is the state of an installation.
type Status struct {
	Slots     []Slot     `json:"slots"`
	Sidecars  []Sidecar  `json:"sidecars"`
	Pipelines []Pipeline `json:"pipelines"`
}

// Options configure how much a report reads.
type Options struct {
	// CountUpTo is the number of rows up to which a table is counted; larger ones are estimated. 0: 200,000; below 0:
	// no table is counted, and Known and Coverage are not read either.
	CountUpTo int64
	// Counts caches the numbers of known rows for a caller that reads repeatedly; nil: no cache.
	Counts *Counts
	// Uncovered leaves Known and Coverage at 0, since reading a large ledger takes longer than everything else.
	// Counts.Cover sets them.
	Uncovered bool
	// Loaded are pipelines as now found in the catalog. While no sidecar runs, their stored state may be outdated.
	Loaded []pipeline.Pipeline
	// Load returns the same if needed, in place of Loaded: a running sidecar checks its pipelines itself. A pipeline
	// that cannot be checked is reported as stored.
	Load func(ctx context.Context) ([]pipeline.Pipeline, error)
	Only int32 // the number of the only pipeline to read; 0: all
	// AtOnce: do not wait for a slot to be taken over, for a caller that reads repeatedly.
	AtOnce bool
}

// takeOver is how long a slot may be inactive while sidecars run. A standby tries every 3 s, a disconnected streamer
// sooner.
const takeOver = 5 * time.Second

// tables is what a report queries; the database derives the states. Tests of figures have one in memory.
type tables interface {
	slots(ctx context.Context) ([]Slot, error)
	sidecars(ctx context.Context) ([]Sidecar, error)
	// pipelines returns their states; found is what the catalog shows now for some, by their numbers.
	pipelines(ctx context.Context, found map[int32]Found, only int32) ([]Pipeline, error)
	// plan returns the plan for reading a table, in JSON.
	plan(ctx context.Context, table string) (string, error)
	// rows counts the rows of a table, up to most.
	rows(ctx context.Context, table string, most int64) (int64, error)
	// smallTables returns the quoted names of tables that have up to most rows according to the last ANALYZE.
	smallTables(ctx context.Context, most int64) ([]string, error)
	// countAll counts the rows of each table, up to most.
	countAll(ctx context.Context, names []string, most int64) ([]int64, error)
	// countKnown counts the rows of pipelines whose vector matches their current text, as far as known.
	countKnown(ctx context.Context, list []Pipeline) (map[int32]int64, error)
}

// Found is the status of a pipeline according to the catalog.
type Found struct {
	Status pipeline.Status `json:"status"`
	Detail string          `json:"detail"`
}

// Read returns the state of the installation in a database.
func Read(ctx context.Context, db database.DB) (Status, error) { return Options{}.Read(ctx, db) }

// Read returns the state of the installation in a database.
func (o Options) Read(ctx context.Context, db database.DB) (Status, error) {
	atOnce := 1
	if _, several := db.(*pgxpool.Pool); several { // several connections
		atOnce = 2
	}
	return o.read(ctx, server{db, &atomic.Int32{}}, atOnce)
}

// read runs up to atOnce statements at a time.
func (o Options) read(ctx context.Context, db tables, atOnce int) (st Status, err error) {
	o.CountUpTo = cmp.Or(o.CountUpTo, exactRows)
	if st.Slots, err = o.settled(ctx, db.slots); err != nil {
		return st, err
	}
	if st.Sidecars, err = db.sidecars(ctx); err != nil {
		return st, err
	}
	if o.Load != nil && slices.ContainsFunc(st.Slots, func(s Slot) bool { return !st.runs(&s) }) {
		o.Loaded, _ = o.Load(ctx)
	}
	few := func() map[string]int64 { return nil }
	if o.CountUpTo >= 0 && o.Only == 0 {
		few = small(ctx, db, o.CountUpTo, atOnce)
	}
	st.Pipelines, err = db.pipelines(ctx, o.found(), o.Only)
	counts := few()
	if err != nil {
		return st, err
	}
	known := sync.OnceValues(func() (map[int32]int64, error) { return db.countKnown(ctx, st.Pipelines) })
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		// With many pipelines and no coverage wanted, the estimate of the last ANALYZE is enough.
		if p.Status == string(pipeline.Active) && (o.CountUpTo >= 0 || len(st.Pipelines) < many) {
			p.count(ctx, db, counts, o.CountUpTo)
		}
		if o.CountUpTo >= 0 && !o.Uncovered {
			if err := o.Counts.cover(p, known); err != nil {
				return st, err
			}
		}
		st.pace(p)
	}
	return st, nil
}

// found returns the catalog's statuses, without those of pipelines that the role may not look at.
func (o Options) found() map[int32]Found {
	list := map[int32]Found{}
	for i := range o.Loaded {
		if l := &o.Loaded[i]; l.Status != pipeline.Locked {
			list[l.ID] = Found{l.Status, l.Detail}
		}
	}
	return list
}

// settled reads the slots until none is about to be taken over, for at most takeOver.
func (o Options) settled(ctx context.Context, look func(context.Context) ([]Slot, error)) ([]Slot, error) {
	for began := time.Now(); ; {
		slots, err := look(ctx)
		if err != nil || o.AtOnce || time.Since(began) > takeOver ||
			!slices.ContainsFunc(slots, func(s Slot) bool { return s.ChangesHands }) {
			return slots, err
		}
		if !sleep.For(ctx, 200*time.Millisecond) {
			return slots, ctx.Err()
		}
	}
}

// runs reports whether a sidecar runs for a slot.
func (st *Status) runs(slot *Slot) bool {
	return slices.ContainsFunc(st.Sidecars, func(s Sidecar) bool { return s.Slot == slot.Name || s.Slot == "" })
}

// pace sets the speed of a pipeline and its remaining time.
func (st *Status) pace(p *Pipeline) {
	if p.ScanExpected == 0 { // the server had no estimate when the scan began
		p.ScanExpected = p.Rows
	}
	p.Speed = speed.Speed{}
	for i := range st.Sidecars {
		p.Speed = p.Speed.Add(st.Sidecars[i].Speeds[p.ID])
	}
	p.SecondsLeft = p.left()
	p.AtLeast = p.SecondsLeft > 0 && !p.scans() && p.Capped()
}

// count determines the number of rows of the table. It is exact for a small table; few has counts from small. Otherwise
// the planner's estimate is used, which is better than that of the last ANALYZE, which may be missing.
func (p *Pipeline) count(ctx context.Context, db tables, few map[string]int64, upTo int64) {
	table := database.Quote(p.Schema, p.Table)
	rows, counted := few[table]
	if counted && rows <= upTo {
		p.Rows, p.RowsEstimated, p.looked = rows, false, true
		return
	}
	plan, err := db.plan(ctx, table)
	if err != nil {
		return // a role that may not read it gets the estimate of the last ANALYZE
	}
	p.looked = true
	if rows, ok := planned(plan); ok {
		p.Rows = rows
	}
	if p.Rows > upTo { // also if nothing is to be counted
		return
	}
	// The estimate may be wrong by orders of magnitude, so the count stops at the limit.
	if !counted {
		rows, err = db.rows(ctx, table, upTo+1)
	}
	if err == nil {
		p.counted(rows, upTo)
	}
}

// planned returns the number of rows that a plan in JSON expects.
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

// counted sets the number of rows from a count that stopped at upTo + 1.
func (p *Pipeline) counted(rows, upTo int64) {
	if rows <= upTo {
		p.Rows, p.RowsEstimated = rows, false
		return
	}
	p.Rows = max(p.Rows, rows)
}

// Pipelines returns the states of the pipelines, and counts no table.
func Pipelines(ctx context.Context, db database.DB) ([]Pipeline, error) {
	return server{db: db}.pipelines(ctx, nil, 0)
}

// Slots returns the state of every slot that is set up in a database.
func Slots(ctx context.Context, db database.DB) ([]Slot, error) { return server{db: db}.slots(ctx) }

// Worker is a sidecar that runs, or that ended a short while ago.
type Worker struct {
	Sidecar

	Host      string    `json:"host"`
	Role      string    `json:"role"` // all, stream or work; empty: its version does not report it
	Runs      bool      `json:"runs"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"last_seen_at"`
	Leased    int64     `json:"rows_leased"` // rows that it is embedding
}

// Workers returns the sidecars that work the queue of a database, and those that ended a short while ago.
func Workers(ctx context.Context, db database.DB) ([]Worker, error) {
	return collect(ctx, db, "list the workers", pgx.RowToStructByPos[Worker], "list_workers")
}

// Lane is the number of rows of a pipeline with a priority and a state, and their age.
type Lane struct {
	Pipeline string  `json:"pipeline"`
	Priority string  `json:"priority"`
	State    string  `json:"state"`
	Rows     int64   `json:"rows"`
	Oldest   float64 `json:"oldest_seconds"`
	Newest   float64 `json:"newest_seconds"`
	Average  float64 `json:"average_ms"`
}

// Lanes counts all tasks of pipelines by priority and state.
func Lanes(ctx context.Context, db database.DB, pipelines []string) ([]Lane, error) {
	return collect(ctx, db, "count the lanes", pgx.RowToStructByPos[Lane], "count_lanes",
		pgx.StrictNamedArgs{"pipelines": pipelines})
}

// RowState is the state of a row.
type RowState struct {
	Key string `json:"key"`
	// pending: it has no vector yet; stale: its vector is of an older text; no_text: there is nothing to embed
	State     string     `json:"state"`
	WrittenAt *time.Time `json:"written_at"` // null: never
	ChangedAt *time.Time `json:"changed_at"` // null: no pending change
}

// RowStates returns the states of rows of a pipeline. It leaves out rows that were never processed and have no task.
func RowStates(ctx context.Context, db database.DB, pipeline string, keys []string) ([]RowState, error) {
	return collect(ctx, db, "look where rows stand", pgx.RowToStructByPos[RowState], "row_states",
		pgx.StrictNamedArgs{"pipeline": pipeline, "row_keys": keys})
}

// ErrorGroup is a group of rows of a pipeline with the same error.
type ErrorGroup struct {
	Pipeline string    `json:"pipeline"`
	State    string    `json:"state"` // failed, retrying
	Class    string    `json:"class"`
	Code     string    `json:"code"`
	Rows     int64     `json:"rows"`
	First    time.Time `json:"first_committed_at"` // commit times of their changes
	Last     time.Time `json:"last_committed_at"`
	Key      string    `json:"sample_key"` // key of one of them
	Message  string    `json:"sample_message"`
	// rows is a lower bound, because the count is capped
	AtLeast bool `json:"at_least,omitempty"`
	// until the first of them is retried; null: no automatic retry
	NextTrySeconds *float64 `json:"next_try_seconds"`
}

// Errors returns the groups of errors of pipelines, the most frequent first. It reads at most 100,000 rows per pipeline
// and state, like status.
func Errors(ctx context.Context, db database.DB, pipelines []string) ([]ErrorGroup, error) {
	return collect(ctx, db, "group errors", pgx.RowToStructByPos[ErrorGroup], "error_groups",
		pgx.StrictNamedArgs{"pipelines": pipelines, "cap": taskCap})
}

// Line returns the group on one line, with one of its rows.
func (g *ErrorGroup) Line() string {
	what := " given up"
	if g.State == "retrying" {
		what = " failed, to be tried again"
	}
	such := ", such as row " + g.Key
	if g.Rows == 1 {
		such = ", row " + g.Key
	}
	more := ""
	if g.AtLeast {
		more = " or more"
	}
	next := ""
	if g.NextTrySeconds != nil {
		next = " (next try in " + wording.Age(*g.NextTrySeconds) + ")"
	}
	return g.Pipeline + ": " + wording.Count(g.Rows, "row") + more + what + ", " + g.Class + " " + g.Code + such + ": " +
		g.Message + next
}

// Configuration is a part of a sidecar's configuration that is not in force: a rejected file, or a setting that takes
// effect at the next start.
type Configuration struct {
	Instance string   `json:"instance"`
	Subject  string   `json:"subject"` // file, setting
	Name     string   `json:"name"`
	State    string   `json:"state"` // refused, needs_restart
	Detail   string   `json:"detail"`
	Hints    []string `json:"hints"`
}

// Configurations returns the parts of the configurations of running sidecars that are not in force.
func Configurations(ctx context.Context, db database.DB) ([]Configuration, error) {
	return collect(ctx, db, "read what is configured", pgx.RowToStructByPos[Configuration], "status_configuration",
		pgx.StrictNamedArgs{})
}

// Line describes it in one sentence.
func (c *Configuration) Line() string {
	if c.State == "refused" {
		return wording.OneLine("configuration refused by " + c.Instance + ", the one before stays in force: " + c.Detail)
	}
	return "configuration of " + c.Instance + ": " + c.Name + " takes effect at the next start"
}
