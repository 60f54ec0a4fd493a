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
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// SpentError means that a call is not allowed now.
type SpentError struct {
	Reason string
	Ended  bool          // a budget is spent; false: calls under way may leave something
	After  time.Duration // when work goes on, from now; 0: when somebody raises the budget, or soon
}

func (e *SpentError) Error() string { return e.Reason }

// Book is where calls are written down; nil: nothing is.
type Book struct {
	DB     database.DB
	Worker func() int64                              // number of this sidecar; nil: this process is none
	Price  func(p *pipeline.Pipeline) pipeline.Price // nil: there is none
	Budget func(model string) pipeline.Budget        // nil: models have none of their own

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

// Rerank counts texts that a reranker scores for a search of a pipeline. It says no tokens: four bytes are one. The
// budget of the reranker pays, whatever is left of it.
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

// Scores is Rerank for who asks the reranker itself, and no pipeline.
func (b *Book) Scores(ctx context.Context, reranker, query string, texts []string, score func() ([]float32, error),
) (scores []float32, err error) {
	err = b.of(ctx, reranker, pairs(query, texts), false, func(_ *pipeline.Pipeline, tokens int) (int, error) {
		scores, err = score()
		return tokens, err
	})
	return scores, err
}

// Vectors counts a call of who asks a model itself, and no pipeline: its budget pays, if something is left of it. The
// call returns its tokens.
func (b *Book) Vectors(ctx context.Context, model string, texts []string, call func() (int, error)) error {
	return b.of(ctx, model, texts, false, func(*pipeline.Pipeline, int) (int, error) { return call() })
}

// of counts a call that the budget of a model pays for; call is told about how many tokens it takes.
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

// pairs are what a reranker reads.
func pairs(query string, texts []string) []string {
	return lists.Map(texts, func(text string) string { return query + text })
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
		after  *float64
		hold       = "hold_budget($1"
		of     any = p.ID
	)
	if p.ID == 0 { // it is a model alone
		hold, of = "hold_budgets($1::jsonb", []map[string]any{{"kind": "model", "name": p.Model, "budget": p.ModelBudget}}
	}
	err := b.DB.QueryRow(ctx, `SELECT hold, reason, goes_on IS NOT NULL,
			CASE WHEN isfinite(goes_on) THEN extract(epoch FROM goes_on - now())::float8 END
		FROM embedsidecar.`+hold+", $2, $3, $4, $5, $6)",
		of, worker, likely, most, b.price(p), must).Scan(&id, &reason, &ended, &after)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask for the budget: %w", err)
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
