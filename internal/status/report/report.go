// Package report tells from the tables alone how an installation is doing: it works while no sidecar runs, and what
// it says is measured. An estimate says that it is one.
package report

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
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
	Schema string `json:"table_schema"` // as the table is called now
	Table  string `json:"table_name"`
	// another table, quoted, that has taken the name which this one is set up under
	ReplacedBy string         `json:"replaced_by,omitempty"`
	Dropped    bool           `json:"dropped,omitempty"` // the table is gone
	Model      string         `json:"model"`
	Plugin     string         `json:"plugin"`
	Generation int32          `json:"generation"`
	State      health.Code    `json:"state"`
	Reason     string         `json:"reason"`          // why that is its state, in one sentence
	Hints      []string       `json:"hints,omitempty"` // what to do about it
	Works      bool           `json:"works"`           // rows are embedded, or would be if there were any
	NeedsAct   bool           `json:"needs_act"`       // the state does not end by itself
	Severity   string         `json:"severity"`        // ok, warn, error
	MayMiss    bool           `json:"may_miss"`        // changes may have been missed, or nobody reads them
	Enabled    bool           `json:"enabled"`
	Active     pipeline.Hours `json:"active,omitempty"` // when it works; absent: always
	Closed     bool           `json:"outside_hours"`
	Budgets    []Budget       `json:"budgets,omitempty"`    // what it may spend, and has spent; absent: no limit
	BatchJobs  []BatchJob     `json:"batch_jobs,omitempty"` // that are not done
	// failures of a row after which it is a dead letter; absent: as configured for all pipelines
	MaxAttempts   int                `json:"max_attempts,omitempty"`
	Labels        pipeline.Labels    `json:"labels,omitempty"`
	Status        string             `json:"status"` // whether it fits its table, as was last found
	Detail        string             `json:"detail,omitempty"`
	Pending       int64              `json:"pending"`
	Running       int64              `json:"running"`
	Retrying      int64              `json:"retrying"`
	Failed        int64              `json:"failed"`
	Cancelled     int64              `json:"cancelled"`           // somebody took them out of the queue
	OldestSeconds *float64           `json:"oldest_seconds"`      // age of the oldest open change; null: none is open
	WaitsFor      []database.Blocker `json:"waits_for,omitempty"` // open transactions, in states that wait for some
	Aside         int64              `json:"set_aside,omitempty"` // changes that cannot be queued, for a lock
	ScanPhase     string             `json:"scan_phase"`
	ScanReason    string             `json:"scan_reason,omitempty"`
	ScanSeen      int64              `json:"scan_rows_seen"` // compared, and embedded where they differed
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
	Tokens int64 `json:"tokens_embedded"`
	Cut    int64 `json:"texts_cut"` // embedded without their ends: they are longer than the model takes
	Saved  Saved `json:"saved"`
	// of questions, and of texts that rerankers scored, about; up to about a minute ago
	SearchTokens  int64   `json:"search_tokens"`
	SearchPrice   float64 `json:"search_price"` // of these; 0: their models have no price
	Rows          int64   `json:"rows"`
	RowsEstimated bool    `json:"rows_estimated"`
	// known of rows, 0 to 1; null: unknown, as changes may have been missed
	Coverage *float64 `json:"coverage"`

	Checkpoint string `json:"-"` // of its slot: changes before it have been read

	looked bool // at the table itself: Rows is no leftover of the last ANALYZE
}

// Health is the state of the pipeline.
func (p *Pipeline) Health() health.State {
	return health.State{Code: p.State, Reason: p.Reason, Hints: p.Hints}
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
	// written by somebody who may not give any
	HintsIgnored int64 `json:"hints_ignored"`
	OtherServer  bool  `json:"other_server"` // it was set up on another one: the data was restored or copied
	// the database of this server whose slot it is, if that is another
	Elsewhere string             `json:"elsewhere,omitempty"`
	WaitsFor  []database.Blocker `json:"waits_for,omitempty"` // transactions that the making of the slot waits for
	State     health.Code        `json:"state"`               // streaming, or the state of its pipelines that follows
	Status    string             `json:"status"`              // ok, warn, error
	Reason    string             `json:"reason"`
	Hints     []string           `json:"hints,omitempty"`

	ChangesHands bool `json:"-"` // a sidecar is about to take it over
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
	// Load finds them in the place of Loaded, where it matters: a sidecar that runs looks at them itself. What cannot be
	// looked at now is told as it was stored.
	Load func(ctx context.Context) ([]pipeline.Pipeline, error)
	Only int32 // the number of the one pipeline that is asked for; 0: all
	// AtOnce: who asks again and again does not wait for a slot to be taken over.
	AtOnce bool
}

// takeOver is how long a slot may be nobody's while sidecars run: who stands by tries every 3 s, who was cut off
// sooner.
const takeOver = 5 * time.Second

// tables is what a report asks of a database, which judges; tests of figures have one in memory.
type tables interface {
	slots(ctx context.Context) ([]Slot, error)
	sidecars(ctx context.Context) ([]Sidecar, error)
	// pipelines says where they stand; found is what the catalogue says now of some, by their numbers.
	pipelines(ctx context.Context, found map[int32]Found, only int32) ([]Pipeline, error)
	// plan is how a table would be read, in JSON.
	plan(ctx context.Context, table string) (string, error)
	// rows counts the rows of a table, up to so many.
	rows(ctx context.Context, table string, most int64) (int64, error)
	// smallTables are the quoted names of tables that have up to so many rows by what the last ANALYZE says.
	smallTables(ctx context.Context, most int64) ([]string, error)
	// countAll counts the rows of each of some tables, up to so many.
	countAll(ctx context.Context, names []string, most int64) ([]int64, error)
	// countKnown counts the rows of pipelines that have the vector of their text now, for all that is known.
	countKnown(ctx context.Context, list []Pipeline) (map[int32]int64, error)
}

// Found is what the catalogue says now of a pipeline.
type Found struct {
	Status pipeline.Status `json:"status"`
	Detail string          `json:"detail"`
}

// Read returns the state of the installation in a database.
func Read(ctx context.Context, db database.DB) (Status, error) { return Options{}.Read(ctx, db) }

// Read returns the state of the installation in a database.
func (o Options) Read(ctx context.Context, db database.DB) (Status, error) {
	atOnce := 1
	if _, several := db.(*pgxpool.Pool); several { // connections
		atOnce = 2
	}
	return o.read(ctx, server{db}, atOnce)
}

// read asks with up to so many statements at once.
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
		// Of many pipelines what the last ANALYZE says will do where nobody asks.
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

// found is what the catalogue says now; what nobody may look at is no news.
func (o Options) found() map[int32]Found {
	list := map[int32]Found{}
	for i := range o.Loaded {
		if l := &o.Loaded[i]; l.Status != pipeline.Locked {
			list[l.ID] = Found{l.Status, l.Detail}
		}
	}
	return list
}

// settled looks until no slot is about to be taken over, or for as long as that takes.
func (o Options) settled(ctx context.Context, look func(context.Context) ([]Slot, error)) ([]Slot, error) {
	const pause = 200 * time.Millisecond
	for began := time.Now(); ; {
		slots, err := look(ctx)
		if err != nil || o.AtOnce || time.Since(began) > takeOver ||
			!slices.ContainsFunc(slots, func(s Slot) bool { return s.ChangesHands }) {
			return slots, err
		}
		if !sleep.For(ctx, pause) {
			return slots, ctx.Err()
		}
	}
}

// runs reports whether a sidecar runs for a slot.
func (st *Status) runs(slot *Slot) bool {
	return slices.ContainsFunc(st.Sidecars, func(s Sidecar) bool { return s.Slot == slot.Name || s.Slot == "" })
}

// pace says how fast a pipeline is worked, and how long that takes.
func (st *Status) pace(p *Pipeline) {
	if p.ScanExpected == 0 { // the server had no estimate yet when the scan began
		p.ScanExpected = p.Rows
	}
	p.Speed = speed.Speed{}
	for i := range st.Sidecars {
		p.Speed = p.Speed.Add(st.Sidecars[i].Speeds[p.ID])
	}
	p.SecondsLeft = p.left()
	p.AtLeast = p.SecondsLeft > 0 && !p.scans() && p.Capped()
}

// count finds out how many rows the table has: exactly if they are few, which some were counted to be. The planner's
// estimate is better than that of the last ANALYZE, of which there may be none yet.
func (p *Pipeline) count(ctx context.Context, db tables, few map[string]int64, upTo int64) {
	table := database.Quote(p.Schema, p.Table)
	rows, counted := few[table]
	if counted && rows <= upTo {
		p.Rows, p.RowsEstimated, p.looked = rows, false, true
		return
	}
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
	if !counted {
		rows, err = db.rows(ctx, table, upTo+1)
	}
	if err == nil {
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

// Pipelines says where the pipelines stand, and counts no table.
func Pipelines(ctx context.Context, db database.DB) ([]Pipeline, error) {
	return server{db}.pipelines(ctx, nil, 0)
}

// Slots returns the state of every slot that is set up in a database.
func Slots(ctx context.Context, db database.DB) ([]Slot, error) { return server{db}.slots(ctx) }

// Worker is a sidecar that runs, or ended a short while ago.
type Worker struct {
	Sidecar

	Host      string    `json:"host"`
	Role      string    `json:"role"` // all, stream or work; empty: it is of a version that did not say
	Runs      bool      `json:"runs"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"last_seen_at"`
	Leased    int64     `json:"rows_leased"` // that it is embedding
}

// Workers returns the sidecars that work the queue of a database, and those that ended a short while ago.
func Workers(ctx context.Context, db database.DB) ([]Worker, error) {
	return collect(ctx, db, "list the workers", pgx.RowToStructByPos[Worker], "list_workers")
}

// Lane is how many rows of a pipeline have a priority and a state, and for how long they wait.
type Lane struct {
	Pipeline string  `json:"pipeline"`
	Priority string  `json:"priority"`
	State    string  `json:"state"`
	Rows     int64   `json:"rows"`
	Oldest   float64 `json:"oldest_seconds"`
	Newest   float64 `json:"newest_seconds"`
	Average  float64 `json:"average_ms"`
}

// Lanes counts the tasks of pipelines by priority and state, all of them.
func Lanes(ctx context.Context, db database.DB, pipelines []string) ([]Lane, error) {
	return collect(ctx, db, "count the lanes", pgx.RowToStructByPos[Lane], "count_lanes",
		pgx.StrictNamedArgs{"pipelines": pipelines})
}

// RowState is where a row stands.
type RowState struct {
	Key string `json:"key"`
	// pending: it has no vector yet; stale: its vector is of an older text; no_text: there is nothing to embed
	State     string     `json:"state"`
	WrittenAt *time.Time `json:"written_at"` // null: never
	ChangedAt *time.Time `json:"changed_at"` // null: no change waits
}

// RowStates tells where rows of a pipeline stand. Rows that were never looked at, nor wait for it, are left out.
func RowStates(ctx context.Context, db database.DB, pipeline string, keys []string) ([]RowState, error) {
	return collect(ctx, db, "look where rows stand", pgx.RowToStructByPos[RowState], "row_states",
		pgx.StrictNamedArgs{"pipeline": pipeline, "row_keys": keys})
}

// ErrorGroup is rows of a pipeline that have the same trouble.
type ErrorGroup struct {
	Pipeline string    `json:"pipeline"`
	State    string    `json:"state"` // failed, retrying
	Class    string    `json:"class"`
	Code     string    `json:"code"`
	Rows     int64     `json:"rows"`
	First    time.Time `json:"first_committed_at"` // of their changes
	Last     time.Time `json:"last_committed_at"`
	Key      string    `json:"sample_key"` // of one of them
	Message  string    `json:"sample_message"`
	// there are rows at least: no more were read
	AtLeast bool `json:"at_least,omitempty"`
	// until the first of them is tried again; null: they are not by themselves
	NextTrySeconds *float64 `json:"next_try_seconds"`
}

// Errors returns what goes wrong with rows of pipelines, the most frequent first. Of a pipeline and state 100,000 rows
// are read at most, as status counts them.
func Errors(ctx context.Context, db database.DB, pipelines []string) ([]ErrorGroup, error) {
	return collect(ctx, db, "group errors", pgx.RowToStructByPos[ErrorGroup], "error_groups",
		pgx.StrictNamedArgs{"pipelines": pipelines, "cap": taskCap})
}

// Line is the group in one line, with one of its rows.
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

// Configuration is a part of the configuration of a sidecar that is not in force: a file that was refused, or a setting
// that takes effect at the next start.
type Configuration struct {
	Instance string   `json:"instance"`
	Subject  string   `json:"subject"` // file, setting
	Name     string   `json:"name"`
	State    string   `json:"state"` // refused, needs_restart
	Detail   string   `json:"detail"`
	Hints    []string `json:"hints"`
}

// Configurations tells what of the configurations of sidecars that run is not in force.
func Configurations(ctx context.Context, db database.DB) ([]Configuration, error) {
	return collect(ctx, db, "read what is configured", pgx.RowToStructByPos[Configuration], "status_configuration",
		pgx.StrictNamedArgs{})
}

// Line says so in one sentence.
func (c *Configuration) Line() string {
	if c.State == "refused" {
		return wording.OneLine("configuration refused by " + c.Instance + ", the one before stays in force: " + c.Detail)
	}
	return "configuration of " + c.Instance + ": " + c.Name + " takes effect at the next start"
}
