package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

type row struct {
	Pipelines     []string
	Pipeline, Key string
	Story         *explain.Story
	Lines         []string
	Tone          string
	Near          []search.Hit
	Text          bool // show its text
	MayText       bool
}

func (d *Dashboard) row(r *http.Request) (view, error) {
	ctx := r.Context()
	who, _ := gate.CallerOf(ctx)
	o := row{Pipeline: r.FormValue("pipeline"), Key: r.FormValue("key"), MayText: who.RowText}
	o.Text = r.FormValue("text") == "1" && o.MayText
	v := view{page: "row", title: "Row"}
	var err error
	if o.Pipelines, err = d.o.Service.Names(ctx); err != nil {
		return view{}, err
	}
	if o.Key == "" {
		v.data = &o
		return v, nil
	}
	story, err := d.o.Service.Explain(ctx, o.Pipeline, o.Key, o.Text)
	if missing, ok := errors.AsType[*gate.Problem](err); ok && story.Pipeline != "" { // no such row
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

// near returns the rows most similar to one. The page does without them if that takes too long.
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
