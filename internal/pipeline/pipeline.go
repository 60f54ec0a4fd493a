// Package pipeline defines a pipeline: a source table, the text made from its rows, a model and a destination. It
// defines the format of row keys and watched columns, so that the streamer, the worker and verify agree on every byte.
// It runs no SQL.
package pipeline

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Lane is the priority of a task. A pipeline's Priority is that of its live changes.
type Lane int16

// The lanes, from the lowest priority.
const (
	Low    Lane = iota // backfill and reconcile
	Normal             // live changes
	High
	Urgent
)

// LaneWords are the names of the lanes in configurations.
var LaneWords = []string{"low", "normal", "high", "urgent"}

// Status reports whether a pipeline can work.
type Status string

// The statuses of a pipeline. All but Active pause its tasks, which lose nothing.
const (
	Active        Status = "active"
	Missing       Status = "missing"       // the source table does not exist
	Misconfigured Status = "misconfigured" // a column, key or destination differs from what was set up
	Unpublished   Status = "unpublished"   // the table was removed from the publication
	Locked        Status = "locked"        // the table is being altered, so its status is unknown; never stored
)

// Spec is a pipeline as configured, before it is checked against a database.
type Spec struct {
	Name       string // unique; default: the table as written, e.g. "public.docs"
	Schema     string // of the source table
	Table      string
	Columns    []string // in the order of the default text
	Text       string   // SQL expression over the row; "" means the default text of Columns
	Joins      Joins    // tables whose rows contribute to the text
	Filter     string   // SQL expression over the row; "" means every row
	Ignore     string   // SQL expression over the text; an edit that keeps its value is ignored. "": none is
	IntoColumn string   // either: a vector column of the source table
	IntoSchema string   // or: an embedding table; "" means the source table's schema
	IntoTable  string
	// type of a new destination, and required type of an existing one; "": the model's default, or any type
	IntoType   Stored
	Index      string // kind of the index to build after the backfill; "": none
	IndexBuild IndexBuild
	AutoSwitch bool // switch to its next generation as soon as that is complete
	// with that: the least share of the first ten rows that both must find; 0: no condition
	SwitchOverlap float64
	Beside        bool   `db:"-"` // a changed recipe (package resolve) also makes a next generation
	Plugin        string // a name or a path; "" means the default plugin
	Model         string // name or folder; "" means the default model
	Priority      Lane   // priority of live changes
	PriorityBy    string // SQL expression over the row that returns the name of a lane; "" means Priority
	Enabled       bool
	Active        Hours // when it works; changes are always queued
	Overwrite     bool  // take over a destination with others' vectors
	ColumnLists   bool  // publish only the key and the watched columns
	Chunking      Chunking
	Budget        Budget
	ModelBudget   Budget // of all pipelines with its model
	MaxAttempts   int    // failures after which a row is a dead letter; 0: the global setting
	Labels        Labels
	Batch         Batch // batch jobs for backfills
}

// IndexMistake returns what is wrong with the requested index, or "".
func (s Spec) IndexMistake() string { return s.IndexBuild.mistake(s.Index, s.IntoType == StoredSparse) }

// Pipeline is a Spec that a database has confirmed.
type Pipeline struct {
	Spec
	Form
	ID  int32
	OID uint32 // of the source table; renames do not change it
	Key []KeyColumn
	// columns other than the key that text and filter read, by attribute number; source_hash covers them
	Watched  []string
	WatchAll bool // what text and filter read is unknown: every UPDATE counts as a change
	// columns whose types have untrusted owners: their text comes from the type's output function, without a cast
	ByOutput    []string
	Partitioned bool
	Triggers    bool   // user triggers may fire on a write-back to a column
	TriggerMark string // for a superuser: the triggers of the table at the last check; "": unknown
	OwnerMark   string // its owners at the last check, and those of its partitions
	Dims        int    // width of the destination
	Extension   string // the quoted schema of pgvector
	Generation  int32
	Fingerprint string // of the embedder that made this generation's vectors
	BesideID    int32  // the pipeline that it is the other generation of, and searches do not use it; 0: it is live
	Served      bool   // it is live, or was the last one to be
	Switches    int64  // how often it became live or stopped being so
	Wished      bool   // a user requested another model, whose generation is not made yet
	Halted      bool   // all pipelines are paused
	Closed      bool   // it is outside of its hours, by the server's clock
	Spent       bool   // one of its budgets is used up
	Paid        bool   // Spent, but batch jobs have or will return vectors
	Jobs        bool   // it uses batch jobs, or has unfinished ones
	Status      Status
	Detail      string // why the status is not active
}

// KeyColumn is one column of a row's key, with what SQL needs to compare it under any search_path.
type KeyColumn struct {
	Name      string
	Type      string // from format_type(oid, -1), schema-qualified: for casts from text
	Collation string // schema-qualified and quoted; "": the type has none
	Equal     string // schema-qualified: OPERATOR("pg_catalog".=)
	Greater   string // schema-qualified: OPERATOR("pg_catalog".>)
	// Values are sent in the type, for its input function to read: its owner is not trusted, and a cast from text could
	// be the owner's code.
	ByInput bool `db:"-"`
	Routes  bool `db:"-"` // the partition of a row depends on it
}

// KeyNames returns the names of the columns of a key, in its order.
func KeyNames(key []KeyColumn) []string {
	return lists.Map(key, func(k KeyColumn) string { return k.Name })
}

// Routed reports whether the key determines a row's partition.
func (p *Pipeline) Routed() bool {
	return slices.ContainsFunc(p.Key, func(k KeyColumn) bool { return k.Routes })
}

// MadeBy reports whether an embedder's vectors are compatible with those of the pipeline.
func (p *Pipeline) MadeBy(d embed.Description) bool {
	return d.Fingerprint == p.Fingerprint && d.Dims == p.Dims && p.Stored.Takes(d.Sparse)
}

// ModelName is a model as pipelines name it: plugin and model, "" for the defaults.
type ModelName struct{ Plugin, Model string }

// ModelName returns the pipeline's name of its model.
func (s Spec) ModelName() ModelName { return ModelName{s.Plugin, s.Model} }

// Source returns the source table's quoted name.
func (s Spec) Source() string { return pgx.Identifier{s.Schema, s.Table}.Sanitize() }

// Rows returns the source table for reading and writing its rows: with ONLY, unless it is partitioned.
func (p *Pipeline) Rows() string {
	if p.Partitioned {
		return p.Source()
	}
	return "ONLY " + p.Source()
}

// The defaults of pipelines, for the configuration, the worker and the sidecar.
const (
	DefaultLoops        = 3 // concurrent batches of a pipeline
	DefaultBatchRows    = 256
	DefaultLease        = 30 * time.Second
	DefaultCacheBytes   = 16 << 20 // of vectors, per model
	DefaultDrainTimeout = 20 * time.Second

	DefaultMaxAttempts  = 8
	DefaultFirstRetry   = time.Second
	DefaultLongestRetry = 5 * time.Minute
	DefaultHistory      = 24 * time.Hour
	DefaultHistoryRows  = 20_000_000
)
