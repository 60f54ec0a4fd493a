// Package spend keeps embedder calls within the budgets of pipelines and models, which all sidecars of a database
// share. A call's maximum cost is reserved before it begins and settled when it ends. A killed process therefore counts
// too much at worst, never too little.
package spend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// SpentError means that a call is not allowed now.
type SpentError struct {
	Reason string
	Ended  bool          // a budget is used up; false: calls under way may leave some of it
	After  time.Duration // when work can continue; 0: after the budget is raised, or soon
}

func (e *SpentError) Error() string { return e.Reason }

// Book records calls; a nil Book records nothing.
type Book struct {
	DB     database.DB
	Worker func() int64                              // worker_id of this sidecar; nil: this process is none
	Price  func(p *pipeline.Pipeline) pipeline.Price // nil: no prices
	Budget func(model string) pipeline.Budget        // nil: models have no budgets

	mu       sync.Mutex
	searched map[int32]Searched
}

// Searched is the cost of searches of a pipeline: query embeddings and reranked texts.
type Searched struct {
	Tokens int64
	Price  float64
}

// Searches returns the costs since the last call, by pipeline.
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

// Rerank counts texts that a reranker scores for a search of a pipeline. Rerankers report no tokens, so they are
// estimated from the bytes. The reranker's budget is charged even if it is used up.
func (b *Book) Rerank(ctx context.Context, p *pipeline.Pipeline, reranker, query string, texts []string,
	score func() ([]float32, error),
) (scores []float32, err error) {
	err = b.of(ctx, reranker, pairs(query, texts), true, func(model *pipeline.Pipeline, tokens int) (int, error) {
		if scores, err = score(); err != nil {
			return 0, err
		}
		b.search(p, model, tokens)
		return tokens, nil
	})
	return scores, err
}

// Scores is Rerank for a request without a pipeline.
func (b *Book) Scores(ctx context.Context, reranker, query string, texts []string, score func() ([]float32, error),
) (scores []float32, err error) {
	err = b.of(ctx, reranker, pairs(query, texts), false, func(_ *pipeline.Pipeline, tokens int) (int, error) {
		scores, err = score()
		return tokens, err
	})
	return scores, err
}

// Vectors counts a request to a model without a pipeline. The model's budget must not be used up. call returns the
// tokens used.
func (b *Book) Vectors(ctx context.Context, model string, texts []string, call func() (int, error)) error {
	return b.of(ctx, model, texts, false, func(*pipeline.Pipeline, int) (int, error) { return call() })
}

// of counts a call charged to a model's budget. call receives the estimated tokens.
func (b *Book) of(ctx context.Context, model string, texts []string, must bool,
	call func(model *pipeline.Pipeline, tokens int) (int, error),
) error {
	p := &pipeline.Pipeline{Spec: pipeline.Spec{Model: model}}
	if b != nil && b.Budget != nil {
		p.ModelBudget = b.Budget(model)
	}
	c, err := b.begin(ctx, p, texts, must)
	if err != nil {
		return err
	}
	likely := 0
	for _, text := range texts {
		likely += embed.Result{}.TokensOf(text)
	}
	tokens, err := call(p, likely)
	return errors.Join(err, c.End(ctx, tokens, err))
}

// pairs are the inputs of a reranker.
func pairs(query string, texts []string) []string {
	return lists.Map(texts, func(text string) string { return query + text })
}

// Call is a recorded call; nil: nothing to settle.
type Call struct {
	book *Book
	id   int64
}

// Ask records a call that embeds row texts of a pipeline, or returns *SpentError.
func (b *Book) Ask(ctx context.Context, p *pipeline.Pipeline, texts []string) (*Call, error) {
	return b.begin(ctx, p, texts, false)
}

// Spend counts a call that a user waits for: it is allowed even without budget. call returns the tokens used.
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
		const around = 256 // prefixes added by models, and special tokens
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
		after  *float64
		hold       = "hold_budget($1"
		of     any = p.ID
	)
	if p.ID == 0 { // a model without a pipeline
		hold, of = "hold_budgets($1::jsonb", []map[string]any{{"kind": "model", "name": p.Model, "budget": p.ModelBudget}}
	}
	err := b.DB.QueryRow(ctx, `SELECT hold, reason, goes_on IS NOT NULL,
			CASE WHEN isfinite(goes_on) THEN extract(epoch FROM goes_on - now())::float8 END
		FROM embedsidecar.`+hold+", $2, $3, $4, $5, $6)",
		of, worker, likely, most, b.price(p), must).Scan(&id, &reason, &ended, &after)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reserve the budget: %w", err)
	case reason != nil:
		spent := &SpentError{Reason: *reason, Ended: ended}
		if after != nil {
			spent.After = time.Duration(*after * float64(time.Second))
		}
		return nil, spent
	case id == nil:
		return nil, nil
	}
	return &Call{b, *id}, failpoint.Hit("spend/held")
}

// End settles a call with its tokens, or with the estimate if it is unknown whether the provider answered. If settling
// fails, the reserved maximum stays counted.
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
		return fmt.Errorf("settle the budget: %w", err)
	}
	return failpoint.Hit("spend/counted")
}
