package dashboard

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// large is an installation of 300 pipelines, one in three of them broken, with a week of figures.
func large() (*admin.Status, report.Past) {
	st := &admin.Status{}
	st.Slots = []report.Slot{{Name: "embedsidecar", RetainedBytes: 16 << 20, LagBytes: 320 << 10}}
	seconds := 485.9
	for i := range 300 {
		p := report.Pipeline{
			Name: fmt.Sprintf("tenant_%03d.knowledge_base_articles", i), Slot: "embedsidecar", State: health.Backfill,
			Works: true,
			Rows:  240_000, Known: 120_000, Pending: 98_000, OldestSeconds: &seconds, Model: "all-MiniLM-L6-v2",
			ScanPhase: "rows", ScanSeen: 120_000, ScanExpected: 240_000, Reason: "rows are embedded",
		}
		if i%3 == 0 {
			p.State, p.Works, p.NeedsAct = health.Misconfigured, false, true
			p.Reason, p.Hints = "column body does not exist: "+strings.Repeat("why ", 20), []string{"embedsidecar init"}
		}
		st.Pipelines = append(st.Pipelines, observe.Pipeline{Pipeline: p})
	}
	past := report.Past{Window: "7d"}
	for i := range 84 {
		p := report.Point{At: time.Date(2026, 11, 18, 2*i, 0, 0, 0, time.UTC)}
		p.Rate, p.Tokens, p.Price, p.Backlog, p.Failed = 1234.5, 123_456_789, 1.23, 987_654, 12
		p.P50, p.P99 = new(0.0214+float64(i)), new(485.9+float64(i))
		past.Points = append(past.Points, p)
	}
	past.Total = past.Points[0].Did
	past.Pipelines = []string{st.Pipelines[0].Name}
	return st, past
}

// TestPages_AreLight: with 300 pipelines, broken or not, no page takes 100 kB.
func TestPages_AreLight(t *testing.T) {
	t.Parallel()
	service := admin.NewService(admin.ServiceOptions{Config: config.Default(), Log: slog.New(slog.DiscardHandler)})
	d := New(Options{Service: service, Log: slog.New(slog.DiscardHandler), Version: "1.0.0"})
	st, past := large()
	var names []string
	still := unwell(st.Pipelines)[:40]
	var actions []report.Action
	var groups []report.ErrorGroup
	for i := range st.Pipelines {
		names = append(names, st.Pipelines[i].Name)
		actions = append(actions, report.Action{
			Action: "pause", Pipeline: names[i], Result: "paused", SaidBy: "olga@10.0.0.7",
		})
		groups = append(groups, report.ErrorGroup{
			Pipeline: names[i], State: "failed", Class: "data", Code: "malformed_text", Rows: 1234, Key: "100" + fmt.Sprint(i),
			Message: strings.Repeat("byte 17 is no part of any token ", 5),
		})
	}
	replicated := replication{st.Slots[0], gaugeOf(&st.Slots[0]), "good"}
	o := overview{
		Status: st, Health: sentenceOf(&st.Database), Past: pastOf(past, "/", past, past, past, past), Covered: coverOf(st.Pipelines),
		Few: worstFirst(st.Pipelines), Unwell: still[:5], Errors: groups[:5], Actions: actions[:5],
	}
	list := listOf(st.Pipelines, "2")
	found := playground{
		Pipelines: names, Pipeline: names[0], Text: "a question", Asked: true, Show: true, Ready: true,
		Snippets: snippets(names[:1], "a question", 50, true),
	}
	for i := range 50 {
		value := marked(wordsOf("question"), strings.Repeat("a question of words ", 15))
		found.Rows = append(found.Rows, hit{
			Hit: search.Hit{Key: names[i], Distance: new(0.5)}, Shown: []shownColumn{{"title", value}},
		})
	}
	for _, v := range []view{
		{page: "overview", title: "Overview", data: &o},
		{page: "pipelines", title: "Pipelines", data: list},
		{page: "pipeline", title: names[0], data: &onePipeline{
			Pipeline: st.Pipelines[0], Step: stepOf(&st.Pipelines[0]), Past: o.Past, Errors: groups[:1],
		}},
		{page: "system", title: "System", data: map[string]any{
			"Slots": []replication{replicated}, "Pipelines": st.Pipelines, "Sidecars": st.Sidecars, "Names": map[int32]string{},
		}},
		{page: "errors", title: "Queue", data: map[string]any{
			"Groups": groups[:40], "Pipelines": names, "Choice": choice{}, "Unwell": still, "More": 250,
		}},
		{page: "audit", title: "Audit", data: map[string]any{
			"Actions": actions[:auditPage], "Pipelines": names, "Choice": choice{}, "Next": "",
		}},
		{page: "search", title: "Search", data: &found},
	} {
		w := httptest.NewRecorder()
		d.render(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+v.page, nil), v)
		const most = 100_000
		if w.Code != http.StatusOK || w.Body.Len() > most || !strings.Contains(w.Body.String(), "</html>") {
			t.Errorf("%s: %d, %d bytes: %.300s", v.page, w.Code, w.Body.Len(), w.Body.String())
		}
		t.Logf("%s: %d bytes", v.page, w.Body.Len())
	}
}
