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
	{Copied, "this database is a copy from another server, or the slot belongs to another database on this server; nothing is streamed", "`embedsidecar init --adopt` with the pipelines configured; on the server of the original, also with another `--slot` ([runbook](operations.md#a-restored-or-copied-database))"},
	{
		Missing, "the source table was dropped; another table may have its name now",
		"restore the table: `embedsidecar init` with the pipeline configured, or the next `run`, then uses it; or remove the pipeline (`embedsidecar uninstall NAME`)",
	},
	{
		Misconfigured, "a column, the key, a privilege, the destination, or a function that an expression calls differs from the set-up; the reason names it",
		"do what the reason says; the pipeline continues within 10 s",
	},
	{
		Unpublished, "the table is not in the publication, or the publication was dropped: changes are not seen",
		"as the table's owner: `embedsidecar init`",
	},
	{
		Replaced, "the pipeline's table name now belongs to another table; the rows of that table get no vectors",
		"rename the tables back; or move the pipeline to the new table with `embedsidecar init` (with the pipeline configured) or the next `run`",
	},
	{
		NotSetUp, "a sidecar has the pipeline in its configuration but could not set it up, or the pipeline was removed since; the " +
			"reason says which. Other pipelines work",
		"do what the reason says; the sidecar retries every 30 s",
	},
	{
		SlotWaiting, "the replication slot does not exist yet, or is being created: the server then waits for every open transaction of the cluster",
		"let the named transactions end, or end them; if no process creates the slot, start `embedsidecar run`",
	},
	{
		SlotLost, "the replication slot is gone or lost: changes are not seen",
		"`embedsidecar run` creates it again and compares every row; if `on_lost` is `stop`: `embedsidecar run --set slot.on_lost=reconcile`, once",
	},
	{
		Paused, "someone paused it (`embedsidecar audit` shows who): changes are queued, nothing is embedded",
		"`embedsidecar resume NAME...`, or `embedsidecar resume` if all are paused by one switch",
	},
	{
		OutsideHours, "the pipeline is outside its hours (`active`) by the server's clock: changes are queued, nothing is embedded",
		"wait until its hours begin; or `embedsidecar resume NAME --for 1h`",
	},
	{
		BudgetSpent, "a `budget` of the pipeline or of its model is spent: changes are queued, nothing is embedded; searches work",
		"wait until the next day begins (the reason says when), or raise the budget in the configuration: the pipeline then continues at once",
	},
	{
		NoSidecar, "no sidecar streams: changes stay in the slot, and the server keeps WAL for them", "`embedsidecar run`",
	},
	{StreamStuck, "a sidecar runs but cannot read the slot; the reason says why", "do what the reason says"},
	{
		StandbyOnly, "every sidecar stands by, because another program holds the slot: changes are not queued",
		"end the program that holds the slot",
	},
	{
		Disabled, "every running sidecar has `enabled: false` or streams only (`run --role stream`): changes are queued, nothing is embedded",
		"start a sidecar without either",
	},
	{
		PluginUnknown, "no running sidecar knows the plugin or the model of this pipeline",
		"add it to the sidecar's configuration, or install it, then restart the sidecar",
	},
	{
		PluginDown, "the plugin does not start, or keeps failing; the reason says how",
		"[the plugin is down](operations.md#the-plugin-is-down)",
	},
	{
		OtherModel, "the sidecar's model is not the one that made the vectors: vectors of two models must not be mixed",
		"start the sidecar with the previous model, or change the model: `embedsidecar model change`",
	},
	{
		Failing, "the last texts of this pipeline all failed; the pipeline pauses and retries one from time to time",
		"`embedsidecar tasks list --state failed --state retrying NAME` shows the errors; fix the cause; the pipeline then continues by itself",
	},
	{
		Unacknowledged, "the pipeline or its definition is new, and the streaming sidecar has not loaded it yet",
		"wait about 10 s",
	},
	{
		Otherwise, "a running sidecar's configuration differs from how the pipeline is set up; the pipeline works as it is set up",
		"wait while sidecars are being replaced: an older configuration applies once no sidecar with the newer one has run for 30 s; otherwise do what the reason says",
	},
	{
		ScanWaiting, "rows will be compared as soon as the transactions that were open at the request have ended",
		"let the named transactions end, or end them",
	},
	{
		Backfill, "rows that existed before the pipeline are being embedded",
		"wait; `embedsidecar status --watch` shows the progress",
	},
	{
		Comparing, "every row is being compared with what was written for it; only rows that differ are embedded", "wait",
	},
	{
		QueueHeld, "changes cannot be queued because an open transaction holds locks on their rows in the queue, or on the whole queue; other changes are queued",
		"let the named transactions end, or end them",
	},
	{Working, "rows are waiting or being embedded", "wait"},
	{
		RowsFailed, "all rows are done, except some that could not be embedded",
		"`embedsidecar tasks list --state failed NAME` names them; fix the row, then `embedsidecar tasks retry NAME`, or `embedsidecar tasks discard NAME`",
	},
	{
		RowsCancelled, "all rows are done, except some that were cancelled",
		"nothing; `embedsidecar tasks requeue NAME` queues them again",
	},
	{UpToDate, "every known row has its vector", "nothing"},
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
