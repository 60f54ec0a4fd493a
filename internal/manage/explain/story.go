// Package explain tells the story of one row, from its change to its vector: what is read of it in one snapshot. What
// follows from that, and what to do next, is judged by sql/functions/explain.sql. It changes nothing, and shows no text
// of the row unless that is asked for.
package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Story is what is known of one row.
type Story struct {
	Pipeline string    `json:"pipeline"`
	Key      string    `json:"key"`
	AskedAs  string    `json:"asked_as,omitempty"` // another spelling of the key
	Table    string    `json:"table"`              // of the pipeline, quoted
	Model    string    `json:"model"`              // of the pipeline
	Row      Row       `json:"row"`
	Task     *Task     `json:"task"`   // null: nothing waits for the row
	Ledger   *Ledger   `json:"ledger"` // null: nothing was ever written for it
	Vector   Vector    `json:"vector"`
	History  []Outcome `json:"history"` // of the last day, the latest first
	State    State     `json:"pipeline_state"`
	Verdict  Verdict   `json:"verdict"`

	Sentences []Sentence `json:"-"`
}

// Sentence is what is told of a part of the story: pipeline, changes, row, queue, ledger, vector, history, verdict,
// next step.
type Sentence struct{ Topic, Text string }

// Lines tells the story. Names and messages in it are as they are.
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

// Code names a verdict. It is short and fixed.
type Code string

// The verdicts.
const (
	Current    Code = "current"     // the vector is that of the text as it is now
	Empty      Code = "empty"       // no text, so no vector
	NoToken    Code = "no_token"    // the model finds nothing in the text
	Filtered   Code = "filtered"    // the filter leaves the row out
	Skipped    Code = "skipped"     // its writer said that the text needs no new vector
	Gone       Code = "gone"        // no row, and nothing left of it
	DeadLetter Code = "dead_letter" // not tried again by itself
	Cancelled  Code = "cancelled"   // somebody took it out of the queue
	Unreadable Code = "unreadable"  // text or filter fail
	Unjudged   Code = "unjudged"    // the pipeline does not fit its table
	Invisible  Code = "invisible"   // committed, and not yet seen by others
	NotAtWork  Code = "not_at_work" // something is to be done, and the pipeline stands still
	Working    Code = "working"     // a sidecar is at it
	Retrying   Code = "retrying"    // it failed and will be tried again
	Waiting    Code = "waiting"     // in the queue
	NotQueued  Code = "not_queued"  // something is to be done, and nothing waits in the queue
)

// Verdict is what follows from a story.
type Verdict struct {
	Code     Code     `json:"code"`
	Sentence string   `json:"sentence"`
	Hints    []string `json:"hints,omitempty"` // what to do next; none: nothing
}

// String is the sentence with what to do next.
func (v Verdict) String() string { return wording.Joined(append([]string{v.Sentence}, v.Hints...)) }

// Known reports whether there is anything of the row, or has been of late.
func (s *Story) Known() bool {
	return s.Row.Exists || !s.Row.Read || s.Task != nil || s.Ledger != nil || s.Vector.Stored || len(s.History) > 0
}

// HideHashes takes away what tells a short text to anyone who tries texts: for those who may not see it.
func (s *Story) HideHashes() {
	s.Row.TextHash = ""
	if s.Ledger != nil && s.Ledger.TextHash != "" {
		s.Ledger.TextHash = "hidden"
	}
}

// Row is the row as it is now.
type Row struct {
	Read     bool   `json:"read"`               // it could be looked at; otherwise nothing of the rest is known
	SQLState string `json:"sqlstate,omitempty"` // why not, where it is the fault of this row
	Exists   bool   `json:"exists"`
	Taken    bool   `json:"taken"` // the filter lets it through
	Empty    bool   `json:"empty"` // its text is nothing, or blanks
	// of the text, as far as it is looked at; null: it is too large to be read here
	Characters *int    `json:"characters"`
	Bytes      int     `json:"bytes"`
	Cut        bool    `json:"cut"` // the text goes on behind what is looked at
	TextHash   string  `json:"text_hash,omitempty"`
	Text       *string `json:"text,omitempty"` // where it was asked for
	Tokens     *Tokens `json:"tokens,omitempty"`

	text string
}

// Tokens are how many tokens the model sees in a text, where that was asked for.
type Tokens struct {
	Count int `json:"count"` // with those that the model puts around it
	// what the model takes at most: what is beyond is cut off, unless the text is cut into chunks. 0: no limit is known
	Most      int  `json:"most"`
	Truncated bool `json:"truncated"`
}

// Wanted reports whether the row is to have a vector.
func (r *Row) Wanted() bool { return r.Exists && r.Taken && !r.Empty }

// Task is what waits for the row.
type Task struct {
	State               string     `json:"state"` // todo, in_progress, stale, retrying, failed, cancelled
	Lane                string     `json:"lane"`
	Ahead               int64      `json:"ahead"`   // that wait before it, of its pipeline and lane
	Attempt             int32      `json:"attempt"` // tries that failed because of the row itself
	FirstLSN            string     `json:"first_lsn"`
	LastLSN             string     `json:"last_lsn"`
	CommittedAt         time.Time  `json:"committed_at"` // of the oldest change that is not satisfied
	CommittedSecondsAgo float64    `json:"committed_seconds_ago"`
	CreatedAt           time.Time  `json:"created_at"`       // of the task
	ScheduledAt         *time.Time `json:"scheduled_at"`     // when it is due, or was, if it waits or has waited for a time
	StartedAt           *time.Time `json:"started_at"`       // of the try that runs, or else of the last one
	FinishedAt          *time.Time `json:"finished_at"`      // of the last try; null: one runs, or none has ended
	Visible             bool       `json:"visible"`          // others see what the change has committed
	NextTrySeconds      *float64   `json:"next_try_seconds"` // null: it does not wait for another try
	LeasedBy            string     `json:"leased_by,omitempty"`
	LeasedUntil         *time.Time `json:"leased_until"` // null: nobody works on it
	// sessions that have locked the row, where that is what it waits for: pid, role, program, since when
	LockedBy []string `json:"locked_by,omitempty"`
	Class    string   `json:"class,omitempty"`
	Code     string   `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
}

// Ledger is what was last written for the row.
type Ledger struct {
	TextHash          string    `json:"text_hash"` // "": there was no text
	Generation        int32     `json:"generation"`
	LSN               string    `json:"lsn"`
	WrittenAt         time.Time `json:"written_at"`
	WrittenSecondsAgo float64   `json:"written_seconds_ago"`
	Skipped           bool      `json:"skipped"` // its writer said that the text needs no new vector
	Ignored           bool      `json:"ignored"` // the text was edited since its vector was made, in nothing that counts
	Anew              bool      `json:"anew"`    // the row is to be embedded though its text may be the same
	// The watched columns and the text are what they were, for all that is known. Both are false of a row that could not
	// be read.
	SourceAgrees bool `json:"source_agrees"`
	TextAgrees   bool `json:"text_agrees"`
}

// Vector is what the destination holds.
type Vector struct {
	Stored     bool  `json:"stored"`
	Ours       bool  `json:"ours"`       // it is the one that the ledger says was written
	Generation int32 `json:"generation"` // 0: the destination does not say
	Wanted     int32 `json:"pipeline_generation"`
	// all is as it should be: the vector is that of the text as it is now, or there is none and none is wanted
	Current bool `json:"current"`
	Skipped bool `json:"skipped"` // the text needs no new vector, as its writer said
	// null: none of ours is stored. A row whose text did not change keeps its vector when its entry is rewritten, so
	// the vector may be older.
	AtLeastSeconds *float64 `json:"age_at_least_seconds"`
}

// Outcome is how a look at the row ended.
type Outcome struct {
	FinishedAt         time.Time `json:"finished_at"`
	FinishedSecondsAgo float64   `json:"finished_seconds_ago"`
	Outcome            string    `json:"outcome"` // embedded, reused (a vector that was known), unchanged, emptied ...
	Attempt            int32     `json:"attempt"`
	Code               string    `json:"code,omitempty"`
	LSN                string    `json:"lsn"`
	CommittedAt        time.Time `json:"committed_at"`
	Sidecar            string    `json:"sidecar,omitempty"`

	CreatedAt   *time.Time `json:"created_at"`           // of the task; null: there was none
	ScheduledAt *time.Time `json:"scheduled_at"`         // when it was due, if it waited for a time
	StartedAt   *time.Time `json:"started_at,omitempty"` // of its batch
	TookMS      *int32     `json:"took_ms,omitempty"`    // from lease to end of its batch
	Generation  int32      `json:"generation,omitempty"` // of the pipeline
	Dims        int32      `json:"dims,omitempty"`       // of the vector, where one was made
	Version     string     `json:"version,omitempty"`    // of the program, while its sidecar is known
}

// State is where the pipeline stands.
type State struct {
	Code       health.Code `json:"state"`
	Reason     string      `json:"reason"`
	Hints      []string    `json:"hints,omitempty"`
	Works      bool        `json:"works"`                // rows are embedded, or would be if there were any
	Checkpoint string      `json:"checkpoint,omitempty"` // changes before it are in the queue or done
	Scanning   bool        `json:"scanning"`             // a scan that compares every row is not over
}

// Unknown names the rows that there are not and never were, as far as is known; nil where all are known.
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
