package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

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
	Spent        string   `json:"spent"`              // the limit that is reached; empty: none is
	GoesOn       *string  `json:"goes_on"`            // when the next day begins; infinity: only when it is raised; null: it goes on
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
	var lines []string
	for _, b := range p.Budgets {
		lines = append(lines, b.In(p.Saved.Currency))
	}
	if len(lines) == 0 {
		return ""
	}
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
