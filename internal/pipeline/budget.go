package pipeline

import (
	"cmp"
	"fmt"
	"strings"
)

// Budget limits the tokens of a pipeline, or of all pipelines with a model; 0: no limit.
type Budget struct {
	TokensPerDay int     `json:"tokens_per_day,omitempty"`
	Tokens       int     `json:"tokens,omitempty"` // in total
	MoneyPerDay  float64 `json:"money_per_day,omitempty"`
	Money        float64 `json:"money,omitempty"`
	DayIn        string  `json:"zone,omitempty"` // the time zone of days; "": UTC
}

// None reports whether there is no limit.
func (b Budget) None() bool {
	b.DayIn = ""
	return b == Budget{}
}

// Mistake returns what is wrong with a budget of a model with this price, or "".
func (b Budget) Mistake(price float64) string {
	switch {
	case b.None() && b.DayIn != "":
		return "zone alone limits nothing: name tokens_per_day, tokens, money_per_day or money"
	case price == 0 && (b.MoneyPerDay > 0 || b.Money > 0):
		return "money needs the price of the model: models: [{name: ..., price: ...}]; or give tokens"
	case b.DayIn != "" && !isZone(b.DayIn):
		return fmt.Sprintf("zone: %q is not the name of a time zone, such as Europe/Berlin", b.DayIn)
	}
	return ""
}

// Zone is the time zone of days.
func (b Budget) Zone() string { return cmp.Or(b.DayIn, usualZone) }

// String returns the budget as in a configuration; "": none.
func (b Budget) String() string {
	var parts []string
	add := func(name string, value any, is bool) {
		if is {
			parts = append(parts, fmt.Sprintf("%s: %v", name, value))
		}
	}
	add("tokens_per_day", b.TokensPerDay, b.TokensPerDay != 0)
	add("tokens", b.Tokens, b.Tokens != 0)
	add("money_per_day", b.MoneyPerDay, b.MoneyPerDay != 0)
	add("money", b.Money, b.Money != 0)
	add("zone", b.DayIn, b.DayIn != "")
	return strings.Join(parts, ", ")
}

// Row returns the budget for the pipeline's row; nil: none.
func (b Budget) Row() *Budget {
	if b.None() {
		return nil
	}
	return &b
}

// Price is the price of a million tokens of a model; zero: not configured.
type Price struct {
	Million  float64
	Batch    float64 // in batch jobs
	Currency string  // "": not configured
}

// Of returns the price of some tokens; nil: unknown.
func (p Price) Of(tokens int64) *float64 {
	if p.Million <= 0 {
		return nil
	}
	return new(float64(tokens) / 1e6 * p.Million) //nolint:mnd // a million
}
