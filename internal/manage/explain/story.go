// Package explain reports the state of one row, from its change to its vector, as read in one snapshot.
// sql/functions/explain.sql derives the verdict and the hints. The package changes nothing, and shows no text of the
// row unless the caller asks for it.
package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Story is all that is known about one row.
type Story struct {
	Pipeline string    `json:"pipeline"`
	Key      string    `json:"key"`
	AskedAs  string    `json:"asked_as,omitempty"` // the key as given, if spelled differently
	Table    string    `json:"table"`              // the pipeline's table, quoted
	Model    string    `json:"model"`              // the pipeline's model
	Row      Row       `json:"row"`
	Task     *Task     `json:"task"`   // null: the row has no task
	Ledger   *Ledger   `json:"ledger"` // null: nothing was ever written for the row
	Vector   Vector    `json:"vector"`
	History  []Outcome `json:"history"` // of the last day, the latest first
	State    State     `json:"pipeline_state"`
	Verdict  Verdict   `json:"verdict"`

	Sentences []Sentence `json:"-"`
}

// Sentence describes one topic of the story: pipeline, changes, row, queue, ledger, vector, history, verdict, next
// step.
type Sentence struct{ Topic, Text string }

// Lines returns the story as text. Names and messages in it are not escaped.
func (s *Story) Lines() []string {
	lines := []string{s.Pipeline + ", row " + s.Key}
	if s.AskedAs != "" {
		lines[0] += " (asked for as " + s.AskedAs + ")"
	}
	for _, one := range s.Sentences {
		switch one.Topic {
		case "verdict":
			lines = append(lines, "Verdict: "+one.Text+".")
		case "next step":
			lines = append(lines, "Next: "+one.Text)
		default:
			lines = append(lines, one.Text)
		}
	}
	if s.Row.Text != nil {
		lines = append(lines, "Text: "+*s.Row.Text)
	}
	return lines
}

// Code is the short, stable name of a verdict.
type Code string

// The verdicts.
const (
	Current    Code = "current"     // the vector matches the current text
	Empty      Code = "empty"       // no text, so no vector
	NoToken    Code = "no_token"    // the model finds nothing in the text
	Filtered   Code = "filtered"    // the filter excludes the row
	Skipped    Code = "skipped"     // its writer declared that the text needs no new vector
	Gone       Code = "gone"        // the row does not exist, and nothing of it is left
	DeadLetter Code = "dead_letter" // not retried automatically
	Cancelled  Code = "cancelled"   // a user removed it from the queue
	Unreadable Code = "unreadable"  // the text or the filter fails
	Unjudged   Code = "unjudged"    // the pipeline does not match its table
	Invisible  Code = "invisible"   // committed, but not yet visible to other sessions
	NotAtWork  Code = "not_at_work" // there is work, but the pipeline does not run
	Working    Code = "working"     // a sidecar processes it
	Retrying   Code = "retrying"    // it failed and will be retried
	Waiting    Code = "waiting"     // in the queue
	NotQueued  Code = "not_queued"  // there is work, but the queue has no task
)

// Verdict is the conclusion of a story.
type Verdict struct {
	Code     Code     `json:"code"`
	Sentence string   `json:"sentence"`
	Hints    []string `json:"hints,omitempty"` // what to do next; empty: nothing
}

// String returns the sentence followed by the hints.
func (v Verdict) String() string { return wording.Joined(append([]string{v.Sentence}, v.Hints...)) }

// Known reports whether the row exists or has left any trace.
func (s *Story) Known() bool {
	return s.Row.Exists || !s.Row.Read || s.Task != nil || s.Ledger != nil || s.Vector.Stored || len(s.History) > 0
}

// HideHashes removes the hashes, with which a reader could guess a short text, for readers that may not see the text.
func (s *Story) HideHashes() {
	s.Row.TextHash = ""
	if s.Ledger != nil && s.Ledger.TextHash != "" {
		s.Ledger.TextHash = "hidden"
	}
}

// hideOperation removes what only operators may know.
func (s *Story) hideOperation() {
	const asks = "its operator can see why"
	s.State.Reason, s.State.Hints = asks, nil
	if s.Task == nil {
		return
	}
	s.Task.LeasedBy, s.Task.LockedBy = "a sidecar", nil
	if s.Task.Message != "" {
		s.Task.Message = asks
	}
}

// Row is the current row.
type Row struct {
	Read     bool   `json:"read"`               // it could be read; if not, the other fields are unset
	SQLState string `json:"sqlstate,omitempty"` // the error, if this row caused it
	Exists   bool   `json:"exists"`
	Taken    bool   `json:"taken"` // the filter accepts it
	Empty    bool   `json:"empty"` // its text is empty or blank
	// of the part of the text that was read; null: the text is too large to be read here, or its length is not shown
	Characters *int    `json:"characters"`
	Bytes      int     `json:"bytes"`
	Cut        bool    `json:"cut"` // the text continues beyond the part that was read
	TextHash   string  `json:"text_hash,omitempty"`
	Text       *string `json:"text,omitempty"` // only on request
	Tokens     *Tokens `json:"tokens,omitempty"`

	text string
}

// Tokens is the number of tokens that the model sees in a text, on request.
type Tokens struct {
	Count int `json:"count"` // including those that the model adds
	// the model's limit: text beyond it is cut off, unless the text is chunked. 0: no known limit
	Most      int  `json:"most"`
	Truncated bool `json:"truncated"`
}

// Wanted reports whether the row should have a vector.
func (r *Row) Wanted() bool { return r.Exists && r.Taken && !r.Empty }

// Task is the row's task.
type Task struct {
	State               string     `json:"state"` // todo, in_progress, stale, retrying, failed, cancelled
	Lane                string     `json:"lane"`
	Ahead               int64      `json:"ahead"`   // tasks before it in its pipeline and lane
	Attempt             int32      `json:"attempt"` // attempts that failed because of the row itself
	FirstLSN            string     `json:"first_lsn"`
	LastLSN             string     `json:"last_lsn"`
	CommittedAt         time.Time  `json:"committed_at"` // of the oldest change not yet processed
	CommittedSecondsAgo float64    `json:"committed_seconds_ago"`
	CreatedAt           time.Time  `json:"created_at"`       // of the task
	ScheduledAt         *time.Time `json:"scheduled_at"`     // when it is or was due, if it was scheduled for later
	StartedAt           *time.Time `json:"started_at"`       // of the current attempt, or else of the last one
	FinishedAt          *time.Time `json:"finished_at"`      // of the last attempt; null: one runs, or none has ended
	Visible             bool       `json:"visible"`          // other sessions see the committed change
	NextTrySeconds      *float64   `json:"next_try_seconds"` // null: it does not wait for a retry
	LeasedBy            string     `json:"leased_by,omitempty"`
	LeasedUntil         *time.Time `json:"leased_until"` // null: no worker has it
	// sessions that hold a lock on the row, if the task waits for it: pid, role, program, since when
	LockedBy []string `json:"locked_by,omitempty"`
	Class    string   `json:"class,omitempty"`
	Code     string   `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
}

// Ledger is the row's entry in the ledger: what was last written for it.
type Ledger struct {
	TextHash          string    `json:"text_hash"` // "": the row had no text
	Generation        int32     `json:"generation"`
	LSN               string    `json:"lsn"`
	WrittenAt         time.Time `json:"written_at"`
	WrittenSecondsAgo float64   `json:"written_seconds_ago"`
	Skipped           bool      `json:"skipped"` // its writer declared that the text needs no new vector
	Ignored           bool      `json:"ignored"` // the text changed since, but only in ways that do not count
	Anew              bool      `json:"anew"`    // the row is to be embedded even if its text is unchanged
	// Whether the watched columns and the text are unchanged, as far as known. Both are false for a row that could not
	// be read.
	SourceAgrees bool `json:"source_agrees"`
	TextAgrees   bool `json:"text_agrees"`
}

// Vector is the content of the destination.
type Vector struct {
	Stored     bool  `json:"stored"`
	Ours       bool  `json:"ours"`       // it is the one that the ledger records
	Generation int32 `json:"generation"` // 0: the destination does not record it
	Wanted     int32 `json:"pipeline_generation"`
	// the destination is correct: the vector matches the current text, or there is none and none is wanted
	Current bool `json:"current"`
	Skipped bool `json:"skipped"` // its writer declared that the text needs no new vector
	// null: the destination holds no vector of this pipeline. If only the ledger entry was rewritten because the text
	// was unchanged, the vector may be older.
	AtLeastSeconds *float64 `json:"age_at_least_seconds"`
}

// Outcome is the result of processing the row once.
type Outcome struct {
	FinishedAt         time.Time `json:"finished_at"`
	FinishedSecondsAgo float64   `json:"finished_seconds_ago"`
	Outcome            string    `json:"outcome"` // embedded, reused (a known vector), unchanged, emptied ...
	Attempt            int32     `json:"attempt"`
	Code               string    `json:"code,omitempty"`
	LSN                string    `json:"lsn"`
	CommittedAt        time.Time `json:"committed_at"`
	Sidecar            string    `json:"sidecar,omitempty"`

	CreatedAt   *time.Time `json:"created_at"`           // of the task; null: there was none
	ScheduledAt *time.Time `json:"scheduled_at"`         // when it was due, if it was scheduled for later
	StartedAt   *time.Time `json:"started_at,omitempty"` // of its batch
	TookMS      *int32     `json:"took_ms,omitempty"`    // from the lease to the end of its batch
	Generation  int32      `json:"generation,omitempty"` // of the pipeline
	Dims        int32      `json:"dims,omitempty"`       // of the vector, if one was made
	Version     string     `json:"version,omitempty"`    // of the program, while its sidecar is still listed
}

// State is the state of the pipeline.
type State struct {
	Code       health.Code `json:"state"`
	Reason     string      `json:"reason"`
	Hints      []string    `json:"hints,omitempty"`
	Works      bool        `json:"works"`                // it embeds rows, or would if there were any
	Checkpoint string      `json:"checkpoint,omitempty"` // changes before it are queued or done
	Scanning   bool        `json:"scanning"`             // a scan that compares every row is in progress
}

// Unknown returns an error with the keys of rows that do not exist and have left no trace; nil if all are known.
func Unknown(list []Story) error {
	var unknown []string
	for i := range list {
		if !list[i].Known() {
			unknown = append(unknown, fmt.Sprintf("%q", list[i].Key))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return problem.New(problem.NoMatch, fmt.Errorf("pipeline %s knows no row with the key %s", list[0].Pipeline,
		strings.Join(unknown, ", ")), "keys are written as tasks list, search and verify print them")
}
