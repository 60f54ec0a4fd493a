package report

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/spread"
)

func TestPast_SumsUpByTheStep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 34, 56, 0, time.UTC)
	for _, w := range Windows {
		past := w.past(now, nil)
		first, last := past.Points[0], past.Points[len(past.Points)-1]
		if !past.To.Equal(now.Truncate(time.Minute)) || first.At != past.From || first.At.Truncate(w.Step) != first.At ||
			past.To.Sub(past.From) > w.Length || past.To.Sub(past.From) <= w.Length-w.Step ||
			!last.At.Add(time.Duration(last.Seconds*float64(time.Second))).Equal(past.To) || len(past.Points) > 84 {
			t.Errorf("%s: %d points from %v to %v", w.Name, len(past.Points), first, last)
		}
	}
	w := Windows[1]
	past := w.past(now, []string{"a", "b"})
	var quick, slow spread.Counter
	for range 98 {
		quick.Note(10 * time.Millisecond)
	}
	slow.Note(time.Minute)
	slow.Note(time.Minute)
	at := past.From.Add(40 * time.Minute)
	past.fill(w, []measured{
		{Began: past.From.Add(-time.Minute), Embedded: 1000},
		{Began: past.To.Add(time.Hour), Embedded: 1000},
		{Began: at, Embedded: 600, Reused: 400, Texts: 500, Tokens: 70, Price: 2, Backlog: 5, Fresh: quick.Load().List()},
		{Began: at, Embedded: 200, Failed: 3, Backlog: 7, Fresh: slow.Load().List()},
		{Began: at.Add(10 * time.Minute), Backlog: 9},
	})
	got := past.Points[2].Did
	if got.Embedded != 800 || got.Reused != 400 || got.Failed != 3 || got.Rate != 1 || got.Texts != 500 ||
		got.Tokens != 70 || got.Price != 2 || got.Backlog != 12 {
		t.Errorf("%+v", got)
	}
	if *got.P50 < 0.007 || *got.P50 > 0.015 || *got.P99 < 40 || *got.P99 > 90 {
		t.Errorf("half of the rows within %g s, 99 of 100 within %g s", *got.P50, *got.P99)
	}
	if past.Total.Embedded != 800 || past.Total.Backlog != 12 || past.Total.P50 == nil || past.Points[3].P50 != nil {
		t.Errorf("in all %+v", past.Total)
	}
}
