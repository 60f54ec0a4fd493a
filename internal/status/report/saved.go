package report

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

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
