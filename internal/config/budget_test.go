package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// loadBudget reads a file with one model and one pipeline that have these budgets.
func loadBudget(t *testing.T, ofModel, ofPipeline string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "budget.yaml")
	body := "models:\n  - {name: m, plugin: fake" + ofModel + "}\n" +
		"pipelines:\n  - {table: docs, columns: [body], into: {table: v}, model: m" + ofPipeline + "}\n"
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(Source{Flags: map[string][]string{"config": {file}}})
	return c, err
}

func TestLoad_Budgets(t *testing.T) {
	c, err := loadBudget(t, ", price: 0.02, budget: {money_per_day: 2.5, money: 100, zone: Europe/Berlin}",
		", budget: {tokens_per_day: 5000000000, tokens: 7}")
	if err != nil {
		t.Fatal(err)
	}
	spec := c.Pipelines[0]
	if want := (pipeline.Budget{TokensPerDay: 5e9, Tokens: 7}); spec.Budget != want {
		t.Errorf("%+v, want %+v", spec.Budget, want)
	}
	if want := (pipeline.Budget{MoneyPerDay: 2.5, Money: 100, DayIn: "Europe/Berlin"}); spec.ModelBudget != want {
		t.Errorf("%+v, want %+v", spec.ModelBudget, want)
	}
}

func TestLoad_BudgetsThatSayNothing(t *testing.T) {
	for _, tt := range []struct{ ofModel, ofPipeline, want string }{
		{", budget: {money: 5}", "", "models[0].budget: money needs the price of the model"},
		{"", ", budget: {money_per_day: 5}", "pipelines[0].budget: money needs the price of the model"},
		{"", ", budget: {zone: Europe/Berlin}", "zone alone limits nothing"},
		{"", ", budget: {tokens: 5, zone: 'no zone!'}", `"no zone!" is not the name of a time zone`},
		{"", ", budget: {tokens: 0}", "expected a number from 1"},
		{"", ", budget: {tokens: 1.5}", "expected a whole number"},
		{", price: 1", ", budget: {money: -1}", "expected an amount of money"},
		{"", ", budget: 5", "budget"},
		{"", ", budget: {tokens_a_day: 5}", "tokens_per_day"},
	} {
		if _, err := loadBudget(t, tt.ofModel, tt.ofPipeline); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q, %q: %v, want %q", tt.ofModel, tt.ofPipeline, err, tt.want)
		}
	}
}
