package explain

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Code names a verdict. It is short and fixed.
type Code string

// The verdicts.
const (
	Current    Code = "current"     // the vector is that of the text as it is now
	Empty      Code = "empty"       // no text, so no vector
	NoToken    Code = "no_token"    // the model finds nothing in the text
	Filtered   Code = "filtered"    // the filter leaves the row out
	Gone       Code = "gone"        // no row, and nothing left of it
	DeadLetter Code = "dead_letter" // nobody tries it again by himself
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
	Code     Code   `json:"code"`
	Sentence string `json:"sentence"`
	Next     string `json:"next_step,omitempty"` // "": there is nothing to do
}

// String is the sentence with the next step.
func (v Verdict) String() string {
	if v.Next == "" {
		return v.Sentence
	}
	return v.Sentence + "; " + v.Next
}

// judge says what follows from what was read.
func judge(s *Story) Verdict {
	for _, look := range []func(*Story) (Verdict, bool){given, unread, unseen, settled, open} {
		if v, is := look(s); is {
			return v
		}
	}
	if !s.State.Code.Works() {
		return s.idle()
	}
	return Verdict{NotQueued, s.differs() + ", and nothing waits in the queue", s.unqueued()}
}

// given is a row that was given up.
func given(s *Story) (Verdict, bool) {
	if s.Task != nil && s.Task.State == "cancelled" {
		return Verdict{
			Cancelled, "somebody took the row out of the queue, and it has not changed since",
			"a change of the row has it looked at again, and so does embedsidecar tasks requeue " + health.Quoted(s.Pipeline) + " " +
				health.Quoted(s.Key),
		}, true
	}
	if s.Task == nil || s.Task.State != "failed" {
		return Verdict{}, false
	}
	return Verdict{
		DeadLetter, "the row is a dead letter: " + s.Task.trouble(),
		"mend the cause; a change of the row tries it again, and so does " + s.retry(),
	}, true
}

func unread(s *Story) (Verdict, bool) {
	switch {
	case s.Row.Read:
		return Verdict{}, false
	case s.Row.SQLState != "":
		return Verdict{
			Unreadable, "the row's text or filter fails: SQLSTATE " + s.Row.SQLState,
			"mend the row, or the pipeline's expressions; a change of the row is looked at by itself",
		}, true
	}
	return Verdict{Unjudged, "the row cannot be looked at: " + s.State.Reason, strings.Join(s.State.Hints, "; ")}, true
}

// unseen is a change that others do not see yet: what was read of the row is older than it.
func unseen(s *Story) (Verdict, bool) {
	if s.Task == nil || s.Task.Visible {
		return Verdict{}, false
	}
	return Verdict{
		Invisible, "a change is committed, and other sessions do not see it yet",
		"wait; if that lasts, its commit waits for a synchronous standby (wait_event SyncRep in pg_stat_activity)",
	}, true
}

// settled is a row for which nothing is to be done, whatever waits for it.
func settled(s *Story) (Verdict, bool) {
	v := Verdict{}
	switch r := &s.Row; {
	case !r.Exists && !s.Vector.Stored && s.Ledger == nil:
		v = Verdict{Gone, "there is no such row, and nothing is left of it", ""}
	case r.Exists && !r.Taken && !s.Vector.Stored:
		v = Verdict{Filtered, "the pipeline's filter leaves the row out: it has no vector by design", ""}
	case r.Exists && r.Taken && r.Empty && !s.Vector.Stored:
		v = Verdict{Empty, "the row's text is empty: it has no vector by design", ""}
	case s.Vector.Current && !s.Vector.Stored:
		v = Verdict{NoToken, "the model finds nothing to embed in the row's text: it has no vector by design", ""}
	case s.Vector.Current:
		v = Verdict{Current, "the vector is that of the row's text as it is now", ""}
	default:
		return v, false
	}
	if s.Task != nil {
		v.Sentence += " (it is to be looked at again, which need not change anything)"
	}
	return v, true
}

// open is a row for which something is to be done, and a task to do it.
func open(s *Story) (Verdict, bool) {
	t := s.Task
	switch {
	case t == nil:
		return Verdict{}, false
	case t.State == "in_progress":
		return Verdict{Working, s.differs() + ", and " + t.LeasedBy + " is working on it", waitFor}, true
	case !s.State.Code.Works():
		return s.idle(), true
	case t.State == "retrying":
		return Verdict{
			Retrying, fmt.Sprintf("%s; it failed (%s) and is tried again %s", s.differs(), t.trouble(), t.nextTry()),
			"at once: " + s.retry(),
		}, true
	}
	return Verdict{Waiting, s.differs() + ", and a task waits " + t.place(), waitFor}, true
}

const waitFor = "wait; embedsidecar wait --caught-up returns when it is done"

// idle is for a row whose pipeline stands still.
func (s *Story) idle() Verdict {
	return Verdict{NotAtWork, s.differs() + ", and the pipeline is not at work: " + s.State.Reason, strings.Join(s.State.Hints, "; ")}
}

// unqueued is what to do about a row that should be in the queue.
func (s *Story) unqueued() string {
	switch s.State.Code {
	case health.Unacknowledged, health.ScanWaiting, health.Backfill, health.Comparing, health.QueueHeld:
		return "wait: " + s.State.Reason
	default:
		return "a change that was just committed is there in a moment; if it stays so: embedsidecar verify --repair " +
			health.Quoted(s.Pipeline)
	}
}

func (s *Story) retry() string {
	return "embedsidecar tasks retry " + health.Quoted(s.Pipeline) + " " + health.Quoted(s.Key)
}

// differs says what is not as it should be.
func (s *Story) differs() string {
	l, v := s.Ledger, &s.Vector
	switch {
	case !s.Row.Exists && v.Stored:
		return "the row is gone, and its vector is still there"
	case !s.Row.Exists:
		return "the row is gone, and its entry in the ledger is still there"
	case !s.Row.Wanted():
		return "the row is to have no vector any more, and one is still there"
	case l == nil:
		return "the row has not been embedded yet"
	case l.Anew:
		return "the row is to be embedded anew"
	case l.TextHash == "" && !l.SourceAgrees:
		return "the row had nothing to embed when it was last looked at, and has changed since"
	case !l.TextAgrees:
		return "the row's text has changed since its vector was made"
	case l.Generation != v.Wanted:
		return "the pipeline's definition has changed since the row was last looked at"
	case !l.SourceAgrees:
		return "the row has changed since it was last looked at, and its text has not"
	case !v.Stored:
		return "the vector that was written has been taken away"
	case !v.Ours:
		return "the destination holds another vector than the one that was written"
	}
	return "the vector is of an older definition of the pipeline"
}

// trouble is why a task failed the last time.
func (t *Task) trouble() string { return fmt.Sprintf("%s %s: %s", t.Class, t.Code, t.Message) }

func (t *Task) nextTry() string {
	if t.NextTrySeconds == nil {
		return "soon"
	}
	return "in " + wording.Age(*t.NextTrySeconds)
}

// place is where a task waits.
func (t *Task) place() string {
	switch {
	case t.Ahead == 0:
		return "with none before it in lane " + t.Lane
	case t.Ahead >= mostAhead:
		return fmt.Sprintf("behind %d others or more in lane %s", t.Ahead, t.Lane)
	case t.Ahead == 1:
		return "behind 1 other in lane " + t.Lane
	}
	return fmt.Sprintf("behind %d others in lane %s", t.Ahead, t.Lane)
}
