package sidecar_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// tokens is what the embedder was sent, as budgets count it.
func (c *counter) tokens() (n int64) {
	for text, times := range c.counts() {
		n += int64(times * embed.Result{}.TokensOf(text))
	}
	return n
}

// states returns the pipelines as status shows them.
func (r *rig) states() []report.Pipeline {
	r.t.Helper()
	st, err := report.Read(r.t.Context(), r.db.Super())
	if err != nil {
		r.t.Fatal(err)
	}
	return st.Pipelines
}

// all waits until every pipeline is in a state.
func (r *rig) all(want health.Code) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		all, seen := true, ""
		for _, p := range r.states() {
			all, seen = all && p.State == want, seen+fmt.Sprintf("%s: %s: %s\n", p.Name, p.State, p.Reason)
		}
		return all, seen
	})
}

// TestP8_ABudgetOfADayEndsInABackfillAndGoesOnTheNextDay: two sidecars and two pipelines share the budget of a model.
// At its end nothing more is embedded, neither of the backfill nor of live changes, status and wait say so, and
// nothing is lost. On each next day by the server's clock as much again is spent.
func TestP8_ABudgetOfADayEndsInABackfillAndGoesOnTheNextDay(t *testing.T) {
	t.Parallel()
	const rows, perDay, batch, loops = 300, 800, 10, 2
	db := testenv.DB(t)
	specs := []pipeline.Spec{intoTable("docs", "body"), column("notes", "body")}
	for i := range specs {
		specs[i].ModelBudget = pipeline.Budget{TokensPerDay: perDay}
		db.MustExec(`CREATE TABLE ` + specs[i].Table + ` (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO `+specs[i].Table+` SELECT i, '`+specs[i].Table+` ' || i FROM generate_series(1, $1::int) AS i`, rows)
	}
	r := newRig(t, db, specs...)
	r.options = func(o *sidecar.Options) { o.BatchRows, o.Loops, o.NoDirect = batch, loops, false }
	r.start()
	r.start()

	spent, days := int64(0), 0
	for open := true; open; days++ {
		if days > 0 { // the day that was counted is the one before
			db.MustExecSuper(`UPDATE embedsidecar.spending SET day = day - 1`)
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			done, seen := true, ""
			for _, p := range r.states() {
				done = done && (p.State == health.BudgetSpent || p.State == health.UpToDate)
				seen += fmt.Sprintf("%s: %s: %s\n", p.Name, p.State, p.Reason)
			}
			fresh := r.count(`SELECT tokens_today FROM embedsidecar.spending WHERE day >= (now() AT TIME ZONE 'UTC')::date
				UNION ALL SELECT 0 LIMIT 1`)
			return done && fresh > 0 && r.count(`SELECT count(*) FROM embedsidecar.hold`) == 0, seen
		})
		open = false
		for _, p := range r.states() {
			open = open || p.State == health.BudgetSpent
			if p.State == health.BudgetSpent &&
				(!strings.Contains(p.Reason, "continues at") || p.NeedsAct || p.Severity != "warn") {
				t.Errorf("%s: %s, severity %s, someone must act: %t", p.Name, p.Reason, p.Severity, p.NeedsAct)
			}
		}
		now := r.embedder.tokens()
		const most = 2 * 2 * (loops + 1) * batch * 4 // all batches of two sidecars and two pipelines
		if today := now - spent; open && (today < perDay || today > perDay+most) {
			t.Errorf("day %d: %d tokens were embedded, want %d and at most the batches under way", days, today, perDay)
		}
		if counted := r.count(`SELECT tokens FROM embedsidecar.spending`); counted != now {
			t.Errorf("day %d: %d tokens are counted, %d were embedded", days, counted, now)
		}
		spent = now
		if days == 0 {
			if !open {
				t.Fatal("the budget did not end")
			}
			db.MustExec(`UPDATE docs SET body = 'edited while it was spent' WHERE id = 1`)
			r.settle() // does not wait for it
			if n := r.embedder.sent("edited while it was spent"); n != 0 {
				t.Errorf("a change was embedded %d times without a budget", n)
			}
		}
	}
	if days < 3 {
		t.Errorf("it took %d days", days)
	}
	r.settle()
	r.embedder.hook(nil)
	r.verify()
	if n := r.embedder.sent("edited while it was spent"); n == 0 {
		t.Error("the change of the first day was lost")
	}
}

// budgeted makes a table docs with a pipeline that has a budget.
func budgeted(t *testing.T, b pipeline.Budget) (*testenv.Database, *rig, pipeline.Spec) {
	t.Helper()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	spec := intoTable("docs", "body")
	spec.Budget = b
	return db, newRig(t, db, spec), spec
}

// TestBudget_GoesOnAtMidnightOfItsZone, by the server's clock.
func TestBudget_GoesOnAtMidnightOfItsZone(t *testing.T) {
	t.Parallel()
	db, r, _ := budgeted(t, pipeline.Budget{TokensPerDay: 1})
	r.options = func(o *sidecar.Options) { o.NoDirect = false }
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	r.all(health.BudgetSpent)
	// A zone in which it is ten seconds before midnight of the day that was counted, or of a later one.
	var (
		zone, day string
		midnight  time.Time
	)
	if err := db.Super().QueryRow(t.Context(), `SELECT zone, (now() AT TIME ZONE zone)::date::text,
			((now() AT TIME ZONE zone)::date + 1)::timestamp AT TIME ZONE zone
		FROM (SELECT format('<T>%s%s', CASE WHEN s < 0 THEN '-' END, make_interval(secs => abs(s))) AS zone
			FROM (SELECT extract(epoch FROM (now() AT TIME ZONE 'UTC')::time)::int + 10 - 86400
				+ CASE WHEN extract(hour FROM now() AT TIME ZONE 'UTC') < 12 THEN 86400 ELSE 0 END AS s) AS o) AS z`).
		Scan(&zone, &day, &midnight); err != nil {
		t.Fatal(err)
	}
	var early atomic.Bool
	r.embedder.hook(func(_ context.Context, texts []string) error {
		if slices.Contains(texts, "two") && time.Now().Before(midnight) {
			early.Store(true)
		}
		return nil
	})
	db.MustExecSuper(`UPDATE embedsidecar.pipeline SET budget = jsonb_build_object('tokens_per_day', 1, 'zone', $1::text)`, zone)
	db.MustExecSuper(`UPDATE embedsidecar.spending SET zone = $1, tokens_today = 5, day = $2::text::date`, zone, day)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // unless midnight has come by now
		p := r.states()[0]
		return p.State == health.BudgetSpent || time.Now().After(midnight), fmt.Sprintf("%s: %s", p.State, p.Reason)
	})
	db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.embedder.sent("two") == 1, fmt.Sprint(r.states()[0].Reason)
	})
	r.settle()
	if early.Load() {
		t.Errorf("it went on before midnight, at %s", midnight)
	}
}

// TestBudget_ADayOfAClockThatWasSetBackDoesNotLast: the day that was counted is to come in a year, as the server's
// clock was wrong. Today has a budget of its own.
func TestBudget_ADayOfAClockThatWasSetBackDoesNotLast(t *testing.T) {
	t.Parallel()
	db, r, _ := budgeted(t, pipeline.Budget{TokensPerDay: 1})
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	r.all(health.BudgetSpent)
	db.MustExecSuper(`UPDATE embedsidecar.spending SET day = day + 365`)
	db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		counted := r.count(`SELECT count(*) FROM embedsidecar.spending WHERE day < now() + interval '3 days'`)
		return r.embedder.sent("two") == 1 && counted == 1, fmt.Sprint(r.states()[0].Reason)
	})
}

// TestBudget_InAllEndsUntilItIsRaised: money, of a pipeline. What asks for vectors is counted and not stopped.
func TestBudget_InAllEndsUntilItIsRaised(t *testing.T) {
	t.Parallel()
	db, r, spec := budgeted(t, pipeline.Budget{Money: 2})
	r.options = func(o *sidecar.Options) {
		o.Price = func(*pipeline.Pipeline) pipeline.Price { return pipeline.Price{Million: 1e6} }
	} // one a token
	r.start()
	db.MustExec(`INSERT INTO docs SELECT i, 'row ' || i FROM generate_series(1, 3) AS i`)
	r.all(health.BudgetSpent)
	p := r.states()[0]
	if !strings.Contains(p.Reason, "when the budget is raised") || !p.NeedsAct || len(p.Hints) == 0 ||
		len(p.Budgets) != 1 || p.Budgets[0].MoneySpent < 2 || *p.Budgets[0].GoesOn != "infinity" {
		t.Errorf("%+v", p)
	}
	spent := p.Budgets[0].TokensSpent
	db.MustExecSuper(`CALL embedsidecar.ask('docs', 'a question', '1 min')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		now := r.states()[0].Budgets[0].TokensSpent
		return now == spent+3, fmt.Sprintf("%d tokens are counted, %d before the question", now, spent)
	})
	db.MustExec(`INSERT INTO docs VALUES (9, 'later')`)
	spec.Budget.Money = 1000
	r.init(spec)
	r.all(health.UpToDate)
	r.settle()
	r.verify()
}

// TestBudget_WhatFailsIsCountedAsFarAsItWasAnswered: a call that fails costs nothing, and one whose end is not known is
// counted as about as much as was expected.
func TestBudget_WhatFailsIsCountedAsFarAsItWasAnswered(t *testing.T) {
	t.Parallel()
	db, r, _ := budgeted(t, pipeline.Budget{Tokens: 1000})
	failures := []embed.Error{
		{Class: embed.Transient, Code: "unavailable", Err: context.Canceled},
		{Class: embed.Transient, Code: "deadline", Err: context.DeadlineExceeded},
	}
	r.embedder.hook(func(context.Context, []string) error {
		if len(failures) == 0 {
			return nil
		}
		err := failures[0]
		err.Err = fmt.Errorf("this is failure %d", len(failures))
		failures = failures[1:]
		return &err
	})
	r.options = func(o *sidecar.Options) { o.Loops = 1 }
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'eight ch')`)
	r.settle()
	if n := r.count(`SELECT tokens FROM embedsidecar.spending`); n != 6 {
		t.Errorf("%d tokens are counted, want 3 of the call without an end and 3 of the answer", n)
	}
}
