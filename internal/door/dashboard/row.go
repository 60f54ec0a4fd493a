package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// row is the page of one row: its story.
type row struct {
	Pipelines     []string
	Pipeline, Key string
	Story         *explain.Story
	Lines         []string
	Tone          string
	Near          []search.Hit
	Text          bool // its text is shown
	MayText       bool
}

// names are the pipelines that somebody sees.
func (d *Dashboard) names(ctx context.Context) ([]string, error) {
	state, err := d.status(ctx)
	names := make([]string, len(state.Pipelines))
	for i := range state.Pipelines {
		names[i] = state.Pipelines[i].Name
	}
	return names, err
}

func (d *Dashboard) row(r *http.Request) (view, error) {
	ctx := r.Context()
	who, _ := gate.CallerOf(ctx)
	o := row{Pipeline: r.FormValue("pipeline"), Key: r.FormValue("key"), MayText: who.RowText}
	o.Text = r.FormValue("text") == "1" && o.MayText
	v := view{page: "row", title: "Row"}
	var err error
	if o.Pipelines, err = d.names(ctx); err != nil {
		return view{}, err
	}
	if o.Key == "" {
		v.data = &o
		return v, nil
	}
	story, err := d.o.Service.Explain(ctx, o.Pipeline, o.Key, o.Text)
	if missing, ok := errors.AsType[*gate.Problem](err); ok && story.Pipeline != "" { // there is no such row: that is told, too
		v.status, err = missing.Status, nil
	}
	if err != nil {
		return view{}, err
	}
	o.Story, o.Pipeline, o.Key, o.Tone = &story, story.Pipeline, story.Key, verdictTone(story.Verdict.Code)
	for _, one := range story.Sentences {
		if one.Topic != "verdict" && one.Topic != "next step" {
			o.Lines = append(o.Lines, one.Text)
		}
	}
	if story.Vector.Stored && who.May(gate.RoleOperator) {
		o.Near = d.near(ctx, o.Pipeline, o.Key, o.Text)
	}
	v.title, v.data, v.live = "Row "+o.Key, &o, true
	return v, nil
}

// near are the rows most similar to one. Where they cannot be found in a moment the page does without.
func (d *Dashboard) near(ctx context.Context, name, key string, text bool) []search.Hit {
	const few, patience = 5, 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	hits, err := d.o.Service.Similar(ctx, name, key, few, text)
	if err != nil {
		return nil
	}
	return hits
}

// verdictTone is how well a row is.
func verdictTone(c explain.Code) string {
	switch c {
	case explain.Current, explain.Skipped, explain.Empty, explain.NoToken, explain.Filtered, explain.Gone:
		return "good"
	case explain.Working, explain.Waiting, explain.Invisible:
		return "busy"
	case explain.Retrying, explain.Cancelled, explain.NotQueued:
		return "warn"
	case explain.DeadLetter, explain.Unreadable, explain.Unjudged, explain.NotAtWork:
	}
	return "bad"
}

// playground is the page that searches.
type playground struct {
	admin.Found

	Pipelines            []string
	Pipeline, Text       string
	K                    int
	Hybrid               bool
	Ks                   []int
	Asked                bool
	MayText, Show, Ready bool
	MayRerank, Rerank    bool
	Trouble              *trouble
}

const (
	mostQuestion = 8 << 10
	usualRows    = 10
)

func (d *Dashboard) search(r *http.Request) (view, error) {
	ctx := r.Context()
	who, _ := gate.CallerOf(ctx)
	o := playground{
		Pipeline: r.FormValue("pipeline"), Text: r.FormValue("q"), K: usualRows, Hybrid: r.FormValue("hybrid") == "1",
		Ks: []int{5, usualRows, 25, 50}, MayText: who.RowText, Ready: d.o.Service.Searches(),
	}
	o.Show = o.MayText && r.FormValue("text") == "1"
	o.MayRerank = o.MayText && d.o.Service.Reranks()
	o.Rerank = o.MayRerank && r.FormValue("rerank") == "1"
	for _, k := range o.Ks {
		if r.FormValue("k") == strconv.Itoa(k) {
			o.K = k
		}
	}
	v := view{page: "search", title: "Search", data: &o}
	var err error
	if o.Pipelines, err = d.names(ctx); err != nil {
		return view{}, err
	}
	// A link works no model: any page of this machine could hold one.
	if strings.TrimSpace(o.Text) == "" || !o.Ready || r.Method != http.MethodPost {
		return v, nil
	}
	if o.Pipeline == "" && len(o.Pipelines) > 0 {
		o.Pipeline = o.Pipelines[0]
	}
	if len(o.Text) > mostQuestion {
		err = misuse("the text to search for is too long: 8 kB at most")
	} else {
		request := search.Request{Hybrid: o.Hybrid, Rows: o.K}
		if o.Rerank {
			request.Rerank = slices.Max(o.Ks) // as many candidates as rows can be wanted
		}
		o.Found, err = d.o.Service.Search(ctx, o.Pipeline, o.Text, request, o.Show)
	}
	if err != nil { // told beside the question, which stays
		p := d.o.Service.ProblemOf(ctx, err)
		o.Trouble, v.status = &trouble{p.Detail, p.Hints}, p.Status
		return v, nil
	}
	o.Asked = true
	return v, nil
}
