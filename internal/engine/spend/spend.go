// Package spend keeps calls of embedders within the budgets of pipelines and models, which all sidecars of a database
// share. A call is written down before it begins, as the most that it can take, and counted when it has ended: a
// process that is killed meanwhile has spent too much at worst, and never too little.
package spend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// SpentError means that a call is not allowed now.
type SpentError struct {
	Reason string
	Ended  bool // a budget is spent; false: calls under way may leave something
}

func (e *SpentError) Error() string { return e.Reason }

// Book is where calls are written down; nil: nothing is.
type Book struct {
	DB     database.DB
	Worker func() int64                              // number of this sidecar; nil: this process is none
	Price  func(p *pipeline.Pipeline) pipeline.Price // nil: there is none

	mu       sync.Mutex
	searched map[int32]Searched
}

// Searched is what searches of a pipeline have cost: questions, and texts for rerankers.
type Searched struct {
	Tokens int64
	Price  float64
}

// Searches returns what was counted since it was last asked, by pipeline.
func (b *Book) Searches() map[int32]Searched {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.searched
	b.searched = nil
	return list
}

func (b *Book) search(p *pipeline.Pipeline, model *pipeline.Pipeline, tokens int) {
	if b == nil || tokens == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.searched == nil {
		b.searched = map[int32]Searched{}
	}
	s := b.searched[p.ID]
	b.searched[p.ID] = Searched{s.Tokens + int64(tokens), s.Price + b.price(model)*float64(tokens)/million}
}

const million = 1e6

func (b *Book) price(p *pipeline.Pipeline) float64 {
	if b.Price == nil {
		return 0
	}
	return b.Price(p).Million
}

// Rerank counts texts that a reranker scores for a search of a pipeline. It says no tokens: four bytes are one. Budgets
// do not pay for it.
func (b *Book) Rerank(p *pipeline.Pipeline, reranker, query string, texts []string,
	score func() ([]float32, error),
) ([]float32, error) {
	scores, err := score()
	if err != nil {
		return nil, err
	}
	tokens := 0
	for _, text := range texts {
		tokens += embed.Result{}.TokensOf(query + text)
	}
	b.search(p, &pipeline.Pipeline{Spec: pipeline.Spec{Model: reranker}}, tokens)
	return scores, nil
}

// Call is one that is written down; nil: it need not be.
type Call struct {
	book *Book
	id   int64
}

// Ask writes down a call that embeds texts of rows of a pipeline, or returns *SpentError.
func (b *Book) Ask(ctx context.Context, p *pipeline.Pipeline, texts []string) (*Call, error) {
	return b.begin(ctx, p, texts, false)
}

// Spend counts a call that somebody waits for: it is allowed whatever is left. The call returns its tokens.
func (b *Book) Spend(ctx context.Context, p *pipeline.Pipeline, texts []string, call func() (int, error)) error {
	c, err := b.begin(ctx, p, texts, true)
	if err != nil {
		return err
	}
	tokens, err := call()
	b.search(p, p, tokens)
	return errors.Join(err, c.End(ctx, tokens, err))
}

func (b *Book) begin(ctx context.Context, p *pipeline.Pipeline, texts []string, must bool) (*Call, error) {
	if b == nil || p.Budget.None() && p.ModelBudget.None() {
		return nil, nil
	}
	likely, most := 0, 0
	for _, text := range texts {
		const around = 256 // prefixes of models, and tokens without text
		likely += embed.Result{}.TokensOf(text)
		most += len(text) + around
	}
	worker := int64(0)
	if b.Worker != nil {
		worker = b.Worker()
	}
	var (
		id     *int64
		reason *string
		ended  bool
	)
	err := b.DB.QueryRow(ctx, "SELECT hold, reason, goes_on IS NOT NULL FROM embedsidecar.hold_budget($1, $2, $3, $4, $5, $6)",
		p.ID, worker, likely, most, b.price(p), must).Scan(&id, &reason, &ended)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask for the budget: %w", err)
	case reason != nil:
		return nil, &SpentError{*reason, ended}
	case id == nil:
		return nil, nil
	}
	return &Call{b, *id}, failpoint.Hit("spend/held")
}

// End counts what a call took: tokens, or as many as were expected where it is not known whether the provider has
// answered. What cannot be counted now is counted as the most that it can have been.
func (c *Call) End(ctx context.Context, tokens int, failed error) error {
	if c == nil {
		return nil
	}
	if err := failpoint.Hit("spend/answered"); err != nil {
		return err
	}
	var known *int
	tokens += embed.Paid(failed)
	if class, code := embed.Classify(failed); failed == nil || class != embed.Crash && code != "deadline" &&
		code != "canceled" && !errors.Is(failed, context.Canceled) {
		known = &tokens
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := c.book.DB.Exec(ctx, "SELECT embedsidecar.settle_budget($1, $2)", c.id, known); err != nil {
		return fmt.Errorf("count what was spent: %w", err)
	}
	return failpoint.Hit("spend/counted")
}
