// Package pipeline holds what a user configures: one source table, the text made of its rows, one model and one
// destination. It knows how a row's key and its watched columns are written down, so that the streamer, the worker
// and verify agree on every byte. It runs no SQL.
package pipeline

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Lane is how urgent a task is. A pipeline's priority is the lane of its live changes.
type Lane int16

// The lanes, least urgent first.
const (
	Low    Lane = iota // backfill and reconcile
	Normal             // live changes
	High
	Urgent
)

// LaneWords are the lanes as users spell them.
var LaneWords = []string{"low", "normal", "high", "urgent"}

// Status reports whether a pipeline can work.
type Status string

// The states of a pipeline. Everything but Active parks its tasks: they wait and lose nothing.
const (
	Active        Status = "active"
	Missing       Status = "missing"       // the source table is gone
	Misconfigured Status = "misconfigured" // a column, key or destination is not what was set up
	Unpublished   Status = "unpublished"   // the table was taken out of the publication
	Locked        Status = "locked"        // somebody alters the table at this moment, so nobody can tell; never stored
)

// Spec is a pipeline as a person writes it, before any database has been asked about it.
type Spec struct {
	Name       string // unique; default: the table as written, e.g. "public.docs"
	Schema     string // of the source table
	Table      string
	Columns    []string // in the order of the default text
	Text       string   // SQL expression over the row; "" means the default text of Columns
	Joins      Joins    // tables whose rows have a part in the text
	Filter     string   // SQL expression over the row; "" means every row
	Ignore     string   // SQL expression over the text; an edit that does not change its value is none. "": all count
	IntoColumn string   // either: a vector column of the source table
	IntoSchema string   // or: an embedding table; "" means the source table's schema
	IntoTable  string
	// type of a destination that is to be made, and that one that is there must have; "": what fits the model, and any
	IntoType   Stored
	Index      string // a kind of index: one is built when the backfill is done; "": none is
	IndexBuild IndexBuild
	AutoSwitch bool // its next generation serves as soon as it is complete
	// with that: the least share of the first ten rows that both must find; 0: any will do
	SwitchOverlap float64
	Beside        bool   `db:"-"` // another recipe (package resolve) is a next generation, too
	Plugin        string // a name or a path; "" means the usual one
	Model         string // name or folder; "" means the default model
	Priority      Lane   // lane of live changes
	PriorityBy    string // SQL expression over the row whose value is the name of a lane; "" means Priority
	Enabled       bool
	Active        Hours // when it works; changes are queued at any time
	Overwrite     bool  // take over a destination that holds vectors of somebody else
	ColumnLists   bool  // publish only the key and the watched columns
	Chunking      Chunking
	Budget        Budget
	ModelBudget   Budget // of all pipelines with its model
	MaxAttempts   int    // failures of a row after which it is a dead letter; 0: as configured for all
	Labels        Labels
	Batch         Batch // jobs of its provider for backfills
}

// IndexMistake returns what is wrong with the index that is asked for, or "".
func (s Spec) IndexMistake() string { return s.IndexBuild.mistake(s.Index, s.IntoType == StoredSparse) }

// Pipeline is a Spec that a database has confirmed.
type Pipeline struct {
	Spec
	Form
	ID  int32
	OID uint32 // of the source table; it survives renames
	Key []KeyColumn
	// columns other than the key that text and filter read, by attribute number; what source_hash covers
	Watched  []string
	WatchAll bool // what text and filter read is not known: every UPDATE counts as a change
	// columns of types of somebody who is not trusted: their text is what the type's output function says, and no cast
	ByOutput    []string
	Partitioned bool
	Triggers    bool   // triggers of the user's may fire on a write-back to a column
	TriggerMark string // of a superuser: the triggers that the table had when it was looked at; "": any may be there
	OwnerMark   string // the owners that it had then, and its partitions
	Dims        int    // width of the destination
	Extension   string // the schema of pgvector, quoted
	Generation  int32
	Fingerprint string // of what made the vectors of this generation
	Beside      int32  // the pipeline whose other generation this is, which nobody searches; 0: it serves
	Served      bool   // it serves, or was the last to do so
	Switches    int64  // how often it has begun or ended to serve
	Wished      bool   // somebody asked for another model, and it is not made yet
	Halted      bool   // all pipelines are paused
	Closed      bool   // it is outside of its hours, by the server's clock
	Spent       bool   // a budget of it is spent
	Jobs        bool   // it makes batch jobs, or has some of before
	Status      Status
	Detail      string // why the status is not active
}

// KeyColumn is one column of a row's key, with what SQL needs to compare it without trusting any search_path.
type KeyColumn struct {
	Name      string
	Type      string // as format_type(oid, -1) writes it, schema-qualified: ready for a cast from text
	Collation string // schema-qualified and quoted; "" when the type has none
	Equal     string // schema-qualified: OPERATOR("pg_catalog".=)
	Greater   string // schema-qualified: OPERATOR("pg_catalog".>)
	// Values are sent in the type, for its input function to read: it is of somebody who is not trusted, and a cast from
	// text would be his code.
	ByInput bool `db:"-"`
	Routes  bool `db:"-"` // the partition of a row depends on it
}

// Routed reports whether the key says in which partition a row is.
func (p *Pipeline) Routed() bool {
	return slices.ContainsFunc(p.Key, func(k KeyColumn) bool { return k.Routes })
}

// MadeBy reports whether an embedder's vectors may stand beside those that the pipeline has.
func (p *Pipeline) MadeBy(d embed.Description) bool {
	return d.Fingerprint == p.Fingerprint && d.Dims == p.Dims && p.Stored.Takes(d.Sparse)
}

// ModelName is what pipelines call a model: plugin and model, "" for the defaults.
type ModelName struct{ Plugin, Model string }

// ModelName returns what the pipeline calls its model.
func (s Spec) ModelName() ModelName { return ModelName{s.Plugin, s.Model} }

// Source returns the source table's name, quoted.
func (s Spec) Source() string { return pgx.Identifier{s.Schema, s.Table}.Sanitize() }

// Rows names the source table where its rows are read or written: a plain table that others inherit from is only
// itself.
func (p *Pipeline) Rows() string {
	if p.Partitioned {
		return p.Source()
	}
	return "ONLY " + p.Source()
}
