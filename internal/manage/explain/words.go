package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Lines tells the story in sentences, from the row to the verdict. Names and messages in them are as they are.
func (s *Story) Lines() []string {
	lines := []string{fmt.Sprintf("%s, row %s", s.Pipeline, s.Key)}
	if s.AskedAs != "" {
		lines[0] += fmt.Sprintf(" (asked for as %s)", s.AskedAs)
	}
	lines = append(lines, s.Row.sentence(), s.Task.sentence(), s.ledger(), s.vector(), s.history())
	if !s.State.Code.Works() {
		lines = append(lines, "The pipeline is not at work: "+s.State.Reason+s.decoded())
	}
	lines = append(lines, "Verdict: "+s.Verdict.String()+".")
	if s.Row.Text != nil {
		lines = append(lines, "Text: "+*s.Row.Text)
	}
	return lines
}

func (s *Story) decoded() string {
	if s.State.Checkpoint == "" {
		return "."
	}
	return fmt.Sprintf(". Changes before LSN %s have been read.", s.State.Checkpoint)
}

func (r *Row) sentence() string {
	switch {
	case !r.Read && r.SQLState != "":
		return "The row is there; its text or filter fails: SQLSTATE " + r.SQLState + "."
	case !r.Read:
		return "The row was not looked at, since the pipeline does not fit its table."
	case !r.Exists:
		return "There is no row with this key."
	case !r.Taken:
		return "The row is there, and the pipeline's filter leaves it out."
	case r.Empty:
		return "The row is there, the filter takes it, and its text is empty."
	case r.Characters == nil:
		return fmt.Sprintf("The row is there, the filter takes it, and its text is large: %s.", wording.Size(int64(r.Bytes)))
	}
	length := wording.Count(int64(*r.Characters), "character")
	if r.Cut {
		length += ", all that is looked at of it: it may go on"
	}
	hash := "" // that of a hidden text is hidden, too
	if r.TextHash != "" {
		hash = " (hash " + short(r.TextHash) + ")"
	}
	return fmt.Sprintf("The row is there, the filter takes it, and its text has %s%s%s.", length, r.Tokens.words(), hash)
}

// words tells how many tokens there are.
func (t *Tokens) words() string {
	switch {
	case t == nil:
		return ""
	case t.Truncated:
		return fmt.Sprintf(" in %s, of which the model takes %d: the rest is cut off",
			wording.Count(int64(t.Count), "token"), t.Most)
	}
	return " in " + wording.Count(int64(t.Count), "token")
}

func (t *Task) sentence() string {
	if t == nil {
		return "Nothing waits for it in the queue."
	}
	return fmt.Sprintf("A task stands for %s. It %s.", t.since(), t.how())
}

// since tells for what the task stands.
func (t *Task) since() string {
	if t.FirstLSN == noLSN {
		return fmt.Sprintf("a look that a scan or somebody asked for, and for what was committed up to LSN %s,"+
			" since %s (%s ago)", t.LastLSN, at(t.CommittedAt), wording.Age(t.CommittedSecondsAgo))
	}
	since := fmt.Sprintf("a change that was committed %s ago (%s, LSN %s) and queued at %s",
		wording.Age(t.CommittedSecondsAgo), at(t.CommittedAt), t.FirstLSN, at(t.EnqueuedAt))
	if t.LastLSN != t.FirstLSN {
		since += ", with others up to LSN " + t.LastLSN
	}
	return since
}

// noLSN is where a task begins that no change has made.
const noLSN = "0/0"

// how tells how the task stands.
func (t *Task) how() (how string) {
	switch t.State {
	case "failed":
		how = "is a dead letter: " + t.trouble()
	case "cancelled":
		how = "was cancelled by somebody"
	case "retrying":
		how = fmt.Sprintf("failed and is tried again %s: %s", t.nextTry(), t.trouble())
		if len(t.LockedBy) > 0 {
			how += " (" + strings.Join(t.LockedBy, "; ") + ")"
		}
	case "in_progress":
		how = fmt.Sprintf("is in work by %s, until %s at most", t.LeasedBy, at(*t.LeasedUntil))
	case "stale":
		how = fmt.Sprintf("was in work by %s, whose lease is over, and waits %s", t.LeasedBy, t.place())
	default:
		how = "waits " + t.place()
	}
	if t.Attempt > 0 {
		how += fmt.Sprintf(" (failed tries: %d)", t.Attempt)
	}
	if !t.Visible {
		how += ", and is not yet seen by other sessions"
	}
	return how
}

func (s *Story) ledger() string {
	l := s.Ledger
	if l == nil {
		return "The ledger has no entry: nothing was written for it yet, or what was is taken away."
	}
	text := "no text"
	if l.TextHash != "" {
		text = "text hash " + short(l.TextHash)
	}
	agrees := ""
	switch {
	case l.Anew:
		agrees = ", to be embedded anew"
	case !s.Row.Read || !s.Row.Exists:
	case l.SourceAgrees && l.TextAgrees:
		agrees = ", as the row is now"
	case l.TextAgrees:
		agrees = ", and the row has changed since"
	default:
		agrees = ", and the row's text is another now"
	}
	return fmt.Sprintf("The ledger was last written %s ago (%s, LSN %s): %s, generation %d%s%s.",
		wording.Age(l.WrittenSecondsAgo), at(l.WrittenAt), l.LSN, text, l.Generation, s.generation(l.Generation), agrees)
}

// generation tells that a generation is not the pipeline's.
func (s *Story) generation(n int32) string {
	if n == s.Vector.Wanted {
		return ""
	}
	return fmt.Sprintf(" (the pipeline's is %d)", s.Vector.Wanted)
}

func (s *Story) vector() string {
	v := &s.Vector
	switch {
	case !s.Row.Read:
		return "The vector was not looked at."
	case !v.Stored:
		return "The destination holds no vector of it."
	case !v.Ours:
		return "The destination holds a vector that is not the one of the ledger."
	}
	line := "The destination holds the vector of the ledger"
	if s.Model != "" {
		line += ", of model " + s.Model
	}
	if v.Generation > 0 && v.Generation != v.Wanted {
		line += fmt.Sprintf(", of generation %d%s", v.Generation, s.generation(v.Generation))
	}
	if v.AtLeastSeconds != nil {
		line += fmt.Sprintf(", which is at least %s old", wording.Age(*v.AtLeastSeconds))
	}
	return line + "."
}

func (s *Story) history() string {
	if len(s.History) == 0 {
		return "Nothing was done for it by way of the queue in the last day."
	}
	parts := make([]string, len(s.History))
	for i, h := range s.History {
		parts[i] = fmt.Sprintf("%s %s ago", h.Outcome, wording.Age(h.FinishedSecondsAgo))
		var more []string
		if h.Code != "" {
			more = append(more, h.Code)
		}
		if h.Outcome == "reused" {
			more = append(more, "its vector was known")
		}
		if h.TookMS != nil {
			more = append(more, fmt.Sprintf("in %d ms", *h.TookMS))
		}
		if h.Generation != 0 && h.Generation != s.Vector.Wanted {
			more = append(more, fmt.Sprintf("generation %d", h.Generation))
		}
		if len(more) > 0 {
			parts[i] += " (" + strings.Join(more, ", ") + ")"
		}
	}
	return "Of late, the latest first: " + strings.Join(parts, ", ") + "."
}

// short is the beginning of a hash.
func short(hash string) string { return hash[:min(len(hash), 12)] }

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }
