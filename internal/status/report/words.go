package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Line returns the state of the slot on one line. Names in it are not escaped.
func (s *Slot) Line() string {
	return "slot " + s.Name + ": " + s.Word() + ", " + wording.Size(s.LagBytes) + " behind, WAL kept " + s.Kept()
}

// Word returns the state of the slot in words.
func (s *Slot) Word() string {
	if s.State == Streamed {
		return s.Reason
	}
	return s.State.Word()
}

// Streamed is the state of a slot that blocks no pipeline.
const Streamed health.Code = "streaming"

// Kept returns how much WAL the slot retains, and its limit.
func (s *Slot) Kept() string {
	if s.SafeWALBytes == nil {
		return wording.Size(s.RetainedBytes)
	}
	return wording.Size(s.RetainedBytes) + " of " + wording.Size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
}

// Word returns the state of the pipeline with its progress.
func (p *Pipeline) Word() string {
	word := p.State.Word()
	switch {
	case p.State != health.Backfill && p.State != health.Comparing, p.ScanExpected <= 0:
		return word
	case p.ScanPhase == "orphans":
		return word + " 100%"
	}
	word += fmt.Sprintf(" %.0f%%", math.Floor(100*min(1, float64(p.ScanSeen)/float64(p.ScanExpected))))
	if rate := p.scanRate(); rate > 0 {
		word += fmt.Sprintf(", %.0f/s", rate)
	}
	if left := p.scanLeft(); left > 0 {
		word += ", " + wording.Age(left)
	}
	return word
}

// AtWork reports whether nothing blocks the pipeline: it has no work, or rows wait that are not only retries.
func (p *Pipeline) AtWork() bool {
	return p.State == health.UpToDate || p.State == health.Working && p.Open() > p.Retrying
}

// BatchJob is an unfinished batch job at a pipeline's provider.
type BatchJob struct {
	State   string  `json:"state"` // gathering, closed, submitting, running, ended
	Job     string  `json:"job"`   // the provider's name of it; empty: not yet known
	Rows    int64   `json:"rows"`
	Texts   int64   `json:"texts"` // 0: the rows are not read yet
	Tokens  int64   `json:"tokens"`
	Price   float64 `json:"price"` // approximate; 0: the configuration has no price for the model
	Seconds float64 `json:"seconds"`
	Message string  `json:"message"` // why it waits, or has no results; empty: no problem
}

// String describes the progress of the job.
func (j BatchJob) String() string {
	what := map[string]string{
		"gathering": "is collecting rows", "closed": "is about to be submitted", "submitting": "is being submitted",
		"running": "runs", "ended": "has ended, its vectors are written",
	}[j.State]
	line := fmt.Sprintf("%s since %s", what, wording.Age(j.Seconds))
	if j.Job != "" {
		line = j.Job + " " + line
	}
	if j.Texts > 0 {
		line += fmt.Sprintf(": %s, %s", wording.Count(j.Texts, "text"), wording.Count(j.Tokens, "token"))
		if j.Price > 0 {
			line += ", price " + wording.Money(j.Price, "")
		}
	} else {
		line += fmt.Sprintf(": about %s", wording.Count(j.Rows, "row"))
	}
	if j.Message != "" {
		line += "; " + j.Message
	}
	return line
}

// BatchLine describes the batch jobs of a pipeline; "" if there are none.
func BatchLine(pipeline string, list []BatchJob) string {
	if len(list) == 0 {
		return ""
	}
	lines := lists.Map(list, func(j BatchJob) string { return "batch job " + j.String() })
	return pipeline + ": " + strings.Join(lines, "; ")
}

// Budget is a budget of a pipeline or of its model, with the amount spent by all that share it.
type Budget struct {
	Kind         string   `json:"kind"` // pipeline or model
	Name         string   `json:"name"`
	TokensPerDay *int64   `json:"tokens_per_day"` // null: no limit
	Tokens       *int64   `json:"tokens"`         // total limit since it was configured
	MoneyPerDay  *float64 `json:"money_per_day"`
	Money        *float64 `json:"money"`
	TokensToday  int64    `json:"tokens_today"`
	TokensSpent  int64    `json:"tokens_spent"`
	MoneyToday   float64  `json:"money_today"`
	MoneySpent   float64  `json:"money_spent"`
	Spent        string   `json:"spent"`   // the limit that is reached; empty: none
	GoesOn       *string  `json:"goes_on"` // start of the next day; infinity: limit must be raised; null: not spent
}

// parts returns the limits with the amounts spent, and the largest share spent (more than 1 if exceeded).
func (b *Budget) parts(currency string) (words []string, most float64) {
	tokens := func(name string, limit *int64, spent int64) {
		if limit != nil {
			words = append(words, fmt.Sprintf("%d of %d tokens %s", spent, *limit, name))
			most = max(most, float64(spent)/float64(*limit))
		}
	}
	money := func(name string, limit *float64, spent float64) {
		if limit != nil {
			words = append(words, fmt.Sprintf("%s of %s %s", wording.Money(spent, ""),
				wording.Money(*limit, cmp.Or(currency, "money")), name))
			most = max(most, spent / *limit)
		}
	}
	tokens("today", b.TokensPerDay, b.TokensToday)
	tokens("in all", b.Tokens, b.TokensSpent)
	money("today", b.MoneyPerDay, b.MoneyToday)
	money("in all", b.Money, b.MoneySpent)
	return words, most
}

// In returns the amounts spent, in a currency: "model m: 12 of 1000 tokens today".
func (b Budget) In(currency string) string {
	words, _ := b.parts(currency)
	return b.Kind + " " + b.Name + ": " + strings.Join(words, ", ")
}

// BudgetLine returns the amounts spent of the budgets; "" if there are none.
func (p *Pipeline) BudgetLine() string {
	if len(p.Budgets) == 0 {
		return ""
	}
	lines := lists.Map(p.Budgets, func(b Budget) string { return b.In(p.Saved.Currency) })
	return p.Name + ": budget of " + strings.Join(lines, "; of ")
}

// BudgetShare returns the largest share spent of a budget (more than 1 if exceeded); known is false without a budget.
func (p *Pipeline) BudgetShare() (share float64, known bool) {
	for i := range p.Budgets {
		_, most := p.Budgets[i].parts("")
		share, known = max(share, most), true
	}
	return share, known
}

// Saved counts what needed no embedder call, by reason. It may lag by about a minute.
type Saved struct {
	Embedded  int64 `json:"texts_embedded"` // texts of rows or chunks that did need one
	Reused    int64 `json:"texts_reused"`   // texts with a known vector
	Unchanged int64 `json:"rows_unchanged"` // processed rows whose vector was current
	Tokens    int64 `json:"tokens"`         // estimate, by the average of the embedded texts
	// approximate price of these tokens, and of the embedded ones; null: no price is configured
	Price    *float64 `json:"price"`
	Spent    *float64 `json:"price_embedded"`
	Currency string   `json:"currency,omitempty"`
}

// reckon estimates the saved tokens from the embedded ones.
func (s *Saved) reckon(embedded int64) {
	if s.Embedded > 0 {
		s.Tokens = int64(float64(embedded) / float64(s.Embedded) * float64(s.Reused+s.Unchanged))
	}
}

// Priced sets the prices.
func (p *Pipeline) Priced(by pipeline.Price) {
	p.Saved.Price, p.Saved.Spent, p.Saved.Currency = by.Of(p.Saved.Tokens), by.Of(p.Tokens), by.Currency
}

// SearchLine returns the cost of searches; "" if there is none.
func (p *Pipeline) SearchLine() string {
	if p.SearchTokens == 0 {
		return ""
	}
	line := fmt.Sprintf("%s: searches took about %s", p.Name, wording.Count(p.SearchTokens, "token"))
	if p.SearchPrice > 0 {
		line += ", price " + wording.Money(p.SearchPrice, p.Saved.Currency)
	}
	return line
}

// SavedLine describes what was saved, on one line; "" if nothing was.
func (p *Pipeline) SavedLine() string {
	s := &p.Saved
	if s.Reused+s.Unchanged == 0 {
		return ""
	}
	var reasons []string
	if s.Reused > 0 {
		reasons = append(reasons, wording.Count(s.Reused, "text")+" had a vector already")
	}
	if s.Unchanged > 0 {
		reasons = append(reasons, wording.Count(s.Unchanged, "row")+" had not changed")
	}
	line := fmt.Sprintf("%s: %s embedded; %s: about %s saved", p.Name, wording.Count(s.Embedded, "text"),
		strings.Join(reasons, ", "), wording.Count(s.Tokens, "token"))
	if s.Price != nil {
		line += ", worth " + wording.Money(*s.Price, s.Currency) + "; " + wording.Money(*s.Spent, s.Currency) + " spent"
	}
	return line
}

// CutLine returns how many texts were truncated, with a hint; "" if none was.
func (p *Pipeline) CutLine() string {
	if p.Cut == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s that were embedded are longer than the model takes, and were cut: "+
		"chunking: {strategy: tokens} embeds all of each (docs/chunking.md)", p.Cut, wording.Count(p.Saved.Embedded, "text"))
}

// SavedLine returns how many changes of the slot needed no processing of their own, and how many hints were ignored; ""
// if there are none.
func (s *Slot) SavedLine() string {
	if s.ChangesUnchanged+s.ChangesJoined+s.HintsIgnored == 0 {
		return ""
	}
	line := fmt.Sprintf("slot %s: %s touched no text, %d joined one that waited", s.Name,
		wording.Count(s.ChangesUnchanged, "change"), s.ChangesJoined)
	if s.HintsIgnored > 0 {
		line += ", " + wording.Count(s.HintsIgnored, "hint") + " ignored that embedsidecar.hint has not made"
	}
	return line
}
