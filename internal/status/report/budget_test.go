package report

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// The amount spent is reported for each budget, and the share is that of the budget nearest to its limit.
func TestBudget_TellsWhatIsSpent(t *testing.T) {
	t.Parallel()
	day, all, money := int64(1000), int64(8000), 2.0
	p := Pipeline{Name: "docs"}
	if share, known := p.BudgetShare(); p.BudgetLine() != "" || share != 0 || known {
		t.Errorf("without a budget: %q, %v, %v", p.BudgetLine(), share, known)
	}
	p.Budgets = []Budget{
		{Kind: "model", Name: "m", TokensPerDay: &day, TokensToday: 250, Tokens: &all, TokensSpent: 6000},
		{Kind: "pipeline", Name: "docs", MoneyPerDay: &money, MoneyToday: 5e-07, Money: &money, MoneySpent: 0.75},
	}
	p.Saved.Currency = "EUR"
	const want = "docs: budget of model m: 250 of 1000 tokens today, 6000 of 8000 tokens in all; " +
		"of pipeline docs: 0.0000005 of 2.00 EUR today, 0.75 of 2.00 EUR in all"
	if got := p.BudgetLine(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if share, known := p.BudgetShare(); share != 0.75 || !known {
		t.Errorf("%v, %v of it is gone", share, known)
	}
}

func TestLines_OfCutTextsSearchesAndConfigurations(t *testing.T) {
	t.Parallel()
	p := Pipeline{Name: "docs", Saved: Saved{Embedded: 9}}
	if p.CutLine() != "" || p.SearchLine() != "" {
		t.Errorf("%q %q where there is nothing to tell", p.CutLine(), p.SearchLine())
	}
	p.Cut, p.SearchTokens, p.SearchPrice = 2, 300, 0.25
	if got := p.CutLine(); got != "2 of 9 texts that were embedded are longer than the model takes, and were cut: "+
		"chunking: {strategy: tokens} embeds all of each (docs/chunking.md)" {
		t.Errorf("%q", got)
	}
	if got := p.SearchLine(); got != "docs: searches took about 300 tokens, price 0.25" {
		t.Errorf("%q", got)
	}
	refused := Configuration{Instance: "a", State: "refused", Detail: "no\nway"}
	if got := refused.Line(); got != wording.OneLine("configuration refused by a, the one before stays in force: no\nway") {
		t.Errorf("%q", got)
	}
	waits := Configuration{Instance: "a", Name: "log.level", State: "needs_restart"}
	if got := waits.Line(); got != "configuration of a: log.level takes effect at the next start" {
		t.Errorf("%q", got)
	}
}
