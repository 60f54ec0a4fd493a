// Package health names the states of a pipeline, and has their documentation. The database determines a pipeline's
// state: sql/functions/states.sql.
package health

import (
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Code names a state. It never changes: JSON and metric labels have it, and users read it with spaces.
type Code string

// The states, in the order of evaluation: the first that applies is the state.
const (
	Copied         Code = "copied"
	Missing        Code = "missing"
	Misconfigured  Code = "misconfigured"
	Unpublished    Code = "unpublished"
	Replaced       Code = "replaced"
	NotSetUp       Code = "not_set_up"
	SlotWaiting    Code = "slot_waiting"
	SlotLost       Code = "slot_lost"
	Paused         Code = "paused"
	OutsideHours   Code = "outside_hours"
	BudgetSpent    Code = "budget_spent"
	NoSidecar      Code = "no_sidecar"
	StreamStuck    Code = "stream_stuck"
	StandbyOnly    Code = "standby_only"
	Disabled       Code = "disabled"
	PluginUnknown  Code = "plugin_unknown"
	PluginDown     Code = "plugin_down"
	OtherModel     Code = "other_model"
	Failing        Code = "failing"
	Unacknowledged Code = "unacknowledged"
	Otherwise      Code = "configured_otherwise"
	ScanWaiting    Code = "scan_waiting"
	Backfill       Code = "backfill"
	Comparing      Code = "comparing"
	QueueHeld      Code = "queue_held"
	Working        Code = "working"
	RowsFailed     Code = "rows_failed"
	RowsCancelled  Code = "rows_cancelled"
	UpToDate       Code = "up_to_date"
)

// Held is not a state: it means that a limit of rows or tokens per second slows the pipeline down. The reason of its
// state says so.
const Held = "held"

// Word is the state for users.
func (c Code) Word() string { return strings.ReplaceAll(string(c), "_", " ") }

// OfEmbedder reports whether an embedder keeps every sidecar from the pipeline.
func (c Code) OfEmbedder() bool {
	return c == PluginUnknown || c == PluginDown || c == OtherModel || c == Failing
}

// Entry is the documentation of a state.
type Entry struct {
	Code  Code
	Means string
	Do    string
}

var table = []Entry{
	{Copied, "this database was restored or copied from that of another server, or the slot is that of another database here; nobody streams it", "`embedsidecar init --adopt` with the pipelines configured; beside the original `--slot` with another name, too ([runbook](operations.md#a-restored-or-copied-database))"},
	{
		Missing, "the source table was dropped; another one may have its name by now",
		"bring the table back, and `embedsidecar init` with the pipeline configured, or the next `run`, takes it over; or remove the pipeline (`embedsidecar uninstall NAME`)",
	},
	{
		Misconfigured, "a column, the key, a privilege, the destination, or what an expression calls is not what was set up; the reason names it",
		"do what the reason says; the pipeline goes on within 10 s",
	},
	{
		Unpublished, "the table is not in the publication, or the publication is gone: changes are not seen",
		"as the table's owner: `embedsidecar init`",
	},
	{
		Replaced, "another table has the name that the pipeline was set up under; its rows get no vectors",
		"rename the tables back, or `embedsidecar init` with the pipeline configured, or the next `run`, moves it to the new one",
	},
	{
		NotSetUp, "a sidecar is configured with the pipeline, and could not set it up, or it was taken away since; the reason says " +
			"which. The others work",
		"do what the reason says; it is tried again every 30 s",
	},
	{
		SlotWaiting, "the replication slot is not made yet, or is being made: then the server waits for every open transaction of the cluster",
		"let the named transactions end, or end them; `embedsidecar run` makes a slot that nobody makes",
	},
	{
		SlotLost, "the replication slot is gone or lost: changes are not seen",
		"`embedsidecar run` creates it again and compares every row; where `on_lost` is `stop`: `embedsidecar run --set slot.on_lost=reconcile`, once",
	},
	{
		Paused, "someone paused it (`embedsidecar audit` shows who): changes are queued, nothing is embedded",
		"`embedsidecar resume NAME...`, or `embedsidecar resume` where all are paused by one switch",
	},
	{
		OutsideHours, "it is outside of the pipeline's hours (`active`), by the server's clock: changes are queued, nothing is embedded",
		"wait until they begin; or `embedsidecar resume NAME --for 1h`",
	},
	{
		BudgetSpent, "a `budget` of the pipeline or of its model is spent: changes are queued, nothing is embedded; searches go on",
		"wait until the next day begins, which the reason names; or raise the budget in the configuration: it goes on at once",
	},
	{
		NoSidecar, "no sidecar runs: changes wait in the slot, and the server keeps WAL for them", "`embedsidecar run`",
	},
	{StreamStuck, "a sidecar runs and cannot read the slot; the reason says why", "do what the reason says"},
	{
		StandbyOnly, "every sidecar stands by, because something else holds the slot: changes are not queued",
		"end what holds the slot",
	},
	{
		Disabled, "the sidecars that run are switched off by `enabled: false`, or stream only (`run --role stream`): changes are queued, nothing is embedded",
		"start one without it",
	},
	{
		PluginUnknown, "no sidecar that runs knows the plugin or the model of this pipeline",
		"name it in the configuration of the sidecar, or install it, and start the sidecar again",
	},
	{
		PluginDown, "the plugin does not start, or fails again and again; the reason says how",
		"[the plugin is down](operations.md#the-plugin-is-down)",
	},
	{
		OtherModel, "the sidecar's model is not the one that made the vectors: the two must not mix",
		"start it with the model as it was, or change it: `embedsidecar model change`",
	},
	{
		Failing, "the last texts of this pipeline all failed, so it rests and tries one now and then",
		"`embedsidecar tasks list --state failed NAME` shows the errors; mend the cause; it goes on by itself",
	},
	{
		Unacknowledged, "the pipeline or its definition is new, and the sidecar that streams has not loaded it yet",
		"wait about 10 s",
	},
	{
		Otherwise, "the configuration of a running sidecar differs from how the pipeline is set up; it works as it is set up",
		"wait while sidecars are replaced: an older configuration is followed when none with the newer one has run for 30 s; otherwise do what the reason says",
	},
	{
		ScanWaiting, "rows are to be compared, as soon as the transactions that were open then have ended",
		"let the named transactions end, or end them",
	},
	{
		Backfill, "rows that were there before the pipeline are being embedded",
		"wait; `embedsidecar status --watch` shows how far it is",
	},
	{
		Comparing, "every row is being compared with what was written for it; only those that differ are embedded", "wait",
	},
	{
		QueueHeld, "changes cannot be queued, because an open transaction has locked their rows in the queue, or the whole queue; other changes are queued",
		"let the named transactions end, or end them",
	},
	{Working, "rows are waiting or being embedded", "wait"},
	{
		RowsFailed, "all rows are done, except some that could not be embedded",
		"`embedsidecar tasks list --state failed NAME` names them; mend the row, then `embedsidecar tasks retry NAME`, or `embedsidecar tasks discard NAME`",
	},
	{
		RowsCancelled, "all rows are done, except some that were cancelled",
		"nothing; `embedsidecar tasks requeue NAME` queues them again",
	},
	{UpToDate, "every row that is known has its vector", "nothing"},
}

// Table returns the documentation of the states, in the order of evaluation.
func Table() []Entry { return slices.Clone(table) }

// Codes returns all states.
func Codes() []string {
	return lists.Map(table, func(e Entry) string { return string(e.Code) })
}

// State is the state of a pipeline.
type State struct {
	Code   Code
	Reason string   // one sentence
	Hints  []string // what to do about it
}

// String returns the reason with its hints.
func (s State) String() string {
	if len(s.Hints) == 0 {
		return s.Reason
	}
	return s.Reason + ": " + wording.Joined(s.Hints)
}

// Stream is what a sidecar does with the slot.
type Stream string

// The states of a stream.
const (
	Starting  Stream = "starting"
	Streaming Stream = "streaming"
	Standby   Stream = "standby"
	Making    Stream = "making" // creates the slot
	Stuck     Stream = "stuck"
	Quiet     Stream = "quiet" // there are no changes, so it pauses until there are
	NoStream  Stream = "none"  // it only processes the queue
)

// Problem is why a sidecar cannot process a pipeline.
type Problem struct {
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Quoted quotes a name as one shell word.
func Quoted(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// Argument quotes a name as a shell argument, even if it looks like a flag; embedsidecar.shell_word does the same.
func Argument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + Quoted(name)
	}
	return Quoted(name)
}
