package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Asked returns the counters of questions; nil before Run.
func (s *Sidecar) Asked() *Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions == nil {
		return nil
	}
	return &s.questions.stats
}

// answers embeds the texts that sessions asked for, ahead of bulk work, and stores the answers. A session without an
// answer soon asks again; this or the next streaming sidecar answers.
func (s *Sidecar) answers(ctx context.Context, qs *questions) error {
	const sweep = time.Minute
	var (
		work sync.WaitGroup
		left atomic.Bool // there are answers to sweep later
	)
	defer work.Wait()
	sweeps := time.NewTicker(sweep)
	defer sweeps.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweeps.C:
			if left.Load() {
				s.sweepAnswers(ctx, &left)
			}
		case <-qs.ready:
		}
		for a, ok := qs.take(); ok; a, ok = qs.take() {
			left.Store(true)
			work.Go(func() {
				defer qs.done(a)
				err := s.keeper.Guard(ctx, restart.Answers, func() error { return s.answer(ctx, qs, a) })
				if err != nil && ctx.Err() == nil {
					s.o.Log.WarnContext(ctx, "questions asked by SQL not answered", "questions", len(a.questions), "error", err)
				}
			})
		}
	}
}

// answerLimit is how long an answer may take: no session waits longer.
const answerLimit = time.Minute

// answer answers questions about one pipeline.
func (s *Sidecar) answer(ctx context.Context, qs *questions, a asked) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if a.refused != nil {
		problem := fmt.Sprintf("too many texts: a role may ask for %d a second, and for %d at a time", askRate, mostOfARole)
		return s.tell(ctx, a.refused, make([]string, len(a.refused)), slices.Repeat([]string{problem}, len(a.refused)))
	}
	began := time.Now()
	all, until := make([]questionID, len(a.questions)), make([]int64, len(a.questions))
	for i, q := range a.questions {
		all[i], until[i] = q.ID, q.Until
	}
	wanted, err := database.Collect(ctx, s.o.Pool, "wanted_questions", pgx.RowTo[int],
		pgx.StrictNamedArgs{"questions": bytesOf(all), "until": until})
	if err != nil {
		return fmt.Errorf("find the unanswered questions: %w", err)
	}
	qs.stats.Expired.Add(int64(len(all) - len(wanted)))
	if len(wanted) == 0 {
		return nil
	}
	ids, texts := make([]questionID, len(wanted)), make([]string, len(wanted))
	wantedQuestions := make([]walmsg.Question, len(wanted))
	for i, place := range wanted {
		wantedQuestions[i] = a.questions[place-1]
		ids[i], texts[i] = all[place-1], wantedQuestions[i].Text
	}
	if a.scores {
		return s.score(ctx, qs, a.pipeline, wantedQuestions)
	}
	vectors, problems := s.vectorsOf(ctx, a.pipeline, texts)
	failed := 0
	for _, problem := range problems {
		if problem != "" {
			failed++
		}
	}
	qs.stats.Failed.Add(int64(failed))
	qs.stats.Answered.Add(int64(len(texts) - failed))
	s.o.Log.DebugContext(ctx, "texts of SQL queries embedded", "pipeline_id", a.pipeline, "texts", len(texts),
		"failed", failed, "took_seconds", time.Since(began).Seconds())
	return s.tell(ctx, ids, vectors, problems)
}

// vectorsOf embeds query texts for a pipeline. It returns each text's vector in pgvector's format, or why there is
// none.
func (s *Sidecar) vectorsOf(ctx context.Context, id int32, texts []string) (vectors, problems []string) {
	vectors, problems = make([]string, len(texts)), make([]string, len(texts))
	var p pipeline.Pipeline
	var results []embed.Result
	err := patiently(ctx, func() (err error) {
		p, results, err = s.embedQueries(ctx, id, texts)
		return err
	})
	for i := range texts {
		switch {
		case err != nil:
			problems[i] = s.shown(err)
		case results[i].Empty:
			problems[i] = "the text holds nothing to embed"
		case results[i].Err != nil:
			problems[i] = "the embedder fails on this text"
		default:
			vectors[i] = pipeline.VectorText(p.Stored == pipeline.StoredSparse, p.Dims, results[i].Vector)
		}
	}
	return vectors, problems
}

// newLimit is how long a question about an unknown pipeline waits: a user may ask right after creating it. It is also
// the limit for an embedder that is down.
const newLimit = 4 * time.Second

// answerable returns the pipeline with this ID if its questions can be answered here.
func (s *Sidecar) answerable(ctx context.Context, id int32) (p pipeline.Pipeline, err error) {
	p, known := s.known(id)
	if !known {
		s.Reload()
	}
	for began := time.Now(); !known && time.Since(began) < newLimit && sleep.For(ctx, 50*time.Millisecond); {
		p, known = s.known(id)
	}
	switch {
	case !known:
		err = errors.New("the streaming sidecar does not know the pipeline yet")
	case s.o.NoWork:
		err = errors.New("the streaming sidecar does not embed (run --role stream): use one with both roles")
	}
	return p, err
}

func (s *Sidecar) known(id int32) (p pipeline.Pipeline, is bool) {
	for _, state := range s.States() {
		if state.Pipeline.ID == id {
			return state.Pipeline, true
		}
	}
	return p, false
}

// patiently retries f while an embedder is restarting, because the waiting session cannot retry.
func patiently(ctx context.Context, f func() error) error {
	left := newLimit
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		err := f()
		down, _ := errors.AsType[*embed.Error](err)
		if down == nil || down.Code != "unavailable" {
			return err
		}
		wait := max(pause, down.RetryAfter)
		if left -= wait; left < 0 || !sleep.For(ctx, wait) {
			return err
		}
	}
}

func (s *Sidecar) embedQueries(ctx context.Context, id int32, texts []string) (p pipeline.Pipeline,
	results []embed.Result, err error,
) {
	if p, err = s.answerable(ctx, id); err != nil {
		return p, nil, err
	}
	service, err := s.serviceFor(ctx, p)
	if err != nil {
		return p, nil, fmt.Errorf("the embedder cannot be started: %w", err)
	}
	d, err := service.Describe(ctx)
	if err != nil {
		return p, nil, fmt.Errorf("the embedder does not report its model: %w", err)
	}
	if !p.MadeBy(d) {
		return p, nil, errors.New("the embedder is not the one that the pipeline's vectors were made with")
	}
	err = s.book.Spend(ctx, &p, texts, func() (int, error) {
		if results, err = service.Ask(ctx, embed.Query, texts); err != nil {
			return 0, fmt.Errorf("the embedder gives no answer: %w", err)
		}
		return embed.Sent(results, texts), nil
	})
	return p, results, err
}

// score answers questions whose texts are to be scored, in order, one at a time.
func (s *Sidecar) score(ctx context.Context, qs *questions, id int32, questions []walmsg.Question) error {
	for i := range questions {
		q := &questions[i]
		began := time.Now()
		scores, problem := "", ""
		var given []float32
		err := patiently(ctx, func() (err error) {
			given, err = s.scoresOf(ctx, id, q.Text, q.Texts)
			return err
		})
		if err != nil {
			problem = s.shown(err)
			qs.stats.Failed.Add(1)
		} else {
			scores = arrayText(given)
			qs.stats.Answered.Add(1)
		}
		s.o.Log.DebugContext(ctx, "texts of an SQL query reranked", "pipeline_id", id, "texts", len(q.Texts),
			"failed", err != nil, "took_seconds", time.Since(began).Seconds())
		if err := s.tell(ctx, []questionID{q.ID}, []string{scores}, []string{problem}); err != nil {
			return err
		}
	}
	return nil
}

// scoresOf returns a pipeline's reranker scores for texts.
func (s *Sidecar) scoresOf(ctx context.Context, id int32, query string, texts []string) ([]float32, error) {
	p, err := s.answerable(ctx, id)
	if err != nil {
		return nil, err
	}
	model := ""
	if s.o.Reranker != nil {
		model = s.o.Reranker(p.Name)
	}
	if model == "" {
		return nil, errors.New("no reranker is configured for the pipeline: name a model, search: {rerank: MODEL}")
	}
	service, err := s.serviceFor(ctx, pipeline.Pipeline{Spec: pipeline.Spec{Model: model}})
	if err != nil {
		return nil, fmt.Errorf("the reranker cannot be started: %w", err)
	}
	scores, err := s.book.Rerank(ctx, &p, model, query, texts, func() ([]float32, error) {
		return service.Rerank(ctx, query, texts)
	})
	return scores, wrap.Errorf(err, "the reranker gives no answer")
}

// arrayText formats numbers as a PostgreSQL array.
func arrayText[T int32 | float32](numbers []T) string {
	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + "}"
}

// tell stores answers where the sessions look for them.
func (s *Sidecar) tell(ctx context.Context, ids []questionID, vectors, problems []string) error {
	_, err := s.o.Pool.Exec(ctx, sqlfiles.Query("write_answers"), pgx.StrictNamedArgs{
		"questions": bytesOf(ids), "vectors": lists.Map(vectors, database.Given),
		"problems": lists.Map(problems, database.Given),
	})
	return wrap.Errorf(err, "store answers")
}

// sweepAnswers deletes old answers. left stays set while some remain.
func (s *Sidecar) sweepAnswers(ctx context.Context, left *atomic.Bool) {
	left.Store(false) // later writes set it again
	var some bool
	if err := s.o.Pool.QueryRow(ctx, sqlfiles.Query("sweep_answers")).Scan(&some); err != nil || some {
		left.Store(true)
	}
}

func bytesOf(ids []questionID) [][]byte {
	return lists.Map(ids, func(v questionID) []byte { return v[:] })
}
