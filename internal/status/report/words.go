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

// Line is the state of the slot in one line. Names in it are as they are.
func (s *Slot) Line() string {
	return "slot " + s.Name + ": " + s.Word() + ", " + wording.Size(s.LagBytes) + " behind, WAL kept " + s.Kept()
}

// Word says what becomes of the slot.
func (s *Slot) Word() string {
	if s.State == Streamed {
		return s.Reason
	}
	return s.State.Word()
}

// Streamed is the state of a slot that keeps no pipeline from its work.
const Streamed health.Code = "streaming"

// Kept is how much WAL the slot keeps, and how much it may.
func (s *Slot) Kept() string {
	if s.SafeWALBytes == nil {
		return wording.Size(s.RetainedBytes)
	}
	return wording.Size(s.RetainedBytes) + " of " + wording.Size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
}

// Word is the state of the pipeline, with how far it is.
func (p *Pipeline) Word() string {
	word := p.State.Word()
	switch {
	case p.State != health.Backfill && p.State != health.Comparing, p.ScanExpected <= 0:
		return word
	case p.ScanPhase == "orphans":
		return word + " 100%"
	}
	//nolint:mnd // percent
	word += fmt.Sprintf(" %.0f%%", math.Floor(100*min(1, float64(p.ScanSeen)/float64(p.ScanExpected))))
	if rate := p.scanRate(); rate > 0 {
		word += fmt.Sprintf(", %.0f/s", rate)
	}
	if left := p.scanLeft(); left > 0 {
		word += ", " + wording.Age(left)
	}
	return word
}

// AtWork reports whether nothing keeps the pipeline from its work: it has none, or rows wait that are not only to be
// tried again.
func (p *Pipeline) AtWork() bool {
	return p.State == health.UpToDate || p.State == health.Working && p.Open() > p.Retrying
}

// BatchJob is a batch job of a pipeline's provider that is not done.
type BatchJob struct {
	State   string  `json:"state"` // gathering, closed, submitting, running, ended
	Job     string  `json:"job"`   // the provider's name of it; empty: it has none yet
	Rows    int64   `json:"rows"`
	Texts   int64   `json:"texts"` // 0: they are not read yet
	Tokens  int64   `json:"tokens"`
	Price   float64 `json:"price"` // about; 0: the model has none in the configuration
	Seconds float64 `json:"seconds"`
	Message string  `json:"message"` // why it waits, or has no results; empty: all is well
}

// String says how far it is.
func (j BatchJob) String() string {
	what := map[string]string{
		"gathering": "its rows are looked for", "closed": "is about to be submitted", "submitting": "is being submitted",
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

// BatchLine says how far the batch jobs of a pipeline are; "" where there are none.
func BatchLine(pipeline string, list []BatchJob) string {
	if len(list) == 0 {
		return ""
	}
	lines := lists.Map(list, func(j BatchJob) string { return "batch job " + j.String() })
	return pipeline + ": " + strings.Join(lines, "; ")
}

// Budget is one of a pipeline, or of its model, and what was spent of it by all that share it.
type Budget struct {
	Kind         string   `json:"kind"` // pipeline or model
	Name         string   `json:"name"`
	TokensPerDay *int64   `json:"tokens_per_day"` // null: no such limit
	Tokens       *int64   `json:"tokens"`         // in all, since it was configured
	MoneyPerDay  *float64 `json:"money_per_day"`
	Money        *float64 `json:"money"`
	TokensToday  int64    `json:"tokens_today"`
	TokensSpent  int64    `json:"tokens_spent"`
	MoneyToday   float64  `json:"money_today"`
	MoneySpent   float64  `json:"money_spent"`
	Spent        string   `json:"spent"`   // the limit that is reached; empty: none is
	GoesOn       *string  `json:"goes_on"` // when the next day begins; infinity: only when it is raised; null: it goes on
}

// parts are the limits with what was spent, as people read them, and how much of each that is, 0 to 1 and more.
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

// In says what was spent, in a currency: "model m: 12 of 1000 tokens today".
func (b Budget) In(currency string) string {
	words, _ := b.parts(currency)
	return b.Kind + " " + b.Name + ": " + strings.Join(words, ", ")
}

// BudgetLine says what was spent of the budgets; "" where there are none.
func (p *Pipeline) BudgetLine() string {
	if len(p.Budgets) == 0 {
		return ""
	}
	lines := lists.Map(p.Budgets, func(b Budget) string { return b.In(p.Saved.Currency) })
	return p.Name + ": budget of " + strings.Join(lines, "; of ")
}

// BudgetShare is how much is spent of the budget that ends first, 0 to 1 and more; known is false without one.
func (p *Pipeline) BudgetShare() (share float64, known bool) {
	for i := range p.Budgets {
		_, most := p.Budgets[i].parts("")
		share, known = max(share, most), true
	}
	return share, known
}

// Saved is what of a pipeline needed no embedder, by reason, up to about a minute ago.
type Saved struct {
	Embedded  int64 `json:"texts_embedded"` // of rows, or of their chunks, that did need one
	Reused    int64 `json:"texts_reused"`   // that had a vector already
	Unchanged int64 `json:"rows_unchanged"` // that were looked at, and had the vector of their text
	Tokens    int64 `json:"tokens"`         // about: as many for each as a text that was embedded has
	// about what these tokens, and those that were embedded, cost; null: nobody has named a price
	Price    *float64 `json:"price"`
	Spent    *float64 `json:"price_embedded"`
	Currency string   `json:"currency,omitempty"`
}

// reckon says about how many tokens were saved, given those that were not.
func (s *Saved) reckon(embedded int64) {
	if s.Embedded > 0 {
		s.Tokens = int64(float64(embedded) / float64(s.Embedded) * float64(s.Reused+s.Unchanged))
	}
}

// Priced fills in what all of it costs.
func (p *Pipeline) Priced(by pipeline.Price) {
	p.Saved.Price, p.Saved.Spent, p.Saved.Currency = by.Of(p.Saved.Tokens), by.Of(p.Tokens), by.Currency
}

// SearchLine says what searches have cost; "" where that is nothing.
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

// SavedLine says what was saved in one line; "" where that is nothing.
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

// CutLine says how many texts were cut, and what to do; "" where none was.
func (p *Pipeline) CutLine() string {
	if p.Cut == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s that were embedded are longer than the model takes, and were cut: "+
		"chunking: {strategy: tokens} embeds all of each (docs/chunking.md)", p.Cut, wording.Count(p.Saved.Embedded, "text"))
}

// SavedLine says how many changes of the slot needed no look of their own, and how many hints were ignored; "" where
// that is none.
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
