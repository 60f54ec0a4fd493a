package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

const (
	onePage     = 50
	auditPage   = 100
	exportPage  = 1000
	mostKeySize = 4096
)

// tasks is the data of the queue page.
type tasks struct {
	Choice    choice
	Path      string
	Pipelines []string
	States    []stateCount
	Tasks     []report.Task
	Columns   []report.TaskColumn // those without a place of their own on the page
	Next      string              // the cursor of the next page; "": none
	Filtered  bool
	Finished  bool          // finished tasks, which have left the queue
	Lanes     []report.Lane // nil: not requested, because that counts all rows
	OfOne     bool          // lanes were requested for more pipelines than the page has room for
	Dead      []string      // pipelines with dead letters

	Priorities []string
}

type stateCount struct {
	Name string
	Rows int64
}

func (d *Dashboard) queue(r *http.Request) (view, error) {
	return d.tasks(r, "queue", "Queue", choiceOf(r.URL.Query()))
}

func (d *Dashboard) deadLetters(r *http.Request) (view, error) {
	c := choiceOf(r.URL.Query())
	c.State = "failed"
	return d.tasks(r, "dead-letters", "Dead letters", c)
}

func (d *Dashboard) tasks(r *http.Request, page, title string, c choice) (view, error) {
	ctx := r.Context()
	f, err := c.filter()
	if err != nil {
		return view{}, err
	}
	state, err := d.status(ctx)
	if err != nil {
		return view{}, err
	}
	t := tasks{Choice: c, Path: "/" + page, Filtered: c.Class+c.Code+c.Key+c.Older != "", Priorities: verbs.Priorities}
	t.Columns = slices.DeleteFunc(slices.Clone(report.TaskColumns), func(c report.TaskColumn) bool { return c.Page == "" })
	var pending, running, retrying, dead, cancelled int64
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		t.Pipelines = append(t.Pipelines, p.Name)
		if c.Pipeline != "" && c.Pipeline != p.Name {
			continue
		}
		if p.Failed > 0 {
			t.Dead = append(t.Dead, p.Name)
		}
		pending, running, retrying, dead, cancelled = pending+p.Pending, running+p.Running, retrying+p.Retrying,
			dead+p.Failed, cancelled+p.Cancelled
	}
	t.States = []stateCount{
		{"todo", pending},
		{"in_progress", running},
		{"retrying", retrying},
		{"failed", dead},
		{"cancelled", cancelled},
		{report.Finished, -1}, // not counted
	}
	t.Dead = t.Dead[:min(12, len(t.Dead))] // the others have buttons if one is chosen
	t.Finished = c.State == report.Finished
	found, err := d.o.Service.Tasks(ctx, admin.TaskQuery{
		Pipelines: c.pipelines(), TaskFilter: f, Cursor: c.After, Limit: onePage,
	})
	t.Tasks, t.Next = found.Tasks, found.Next
	const few = 12 // each may have a dozen lines
	counts := r.URL.Query().Get("lanes") == "1"
	t.OfOne = counts && c.Pipeline == "" && len(state.Pipelines) > few
	if err == nil && counts && !t.OfOne {
		t.Lanes, err = d.o.Service.Lanes(ctx, c.pipelines())
	}
	return view{page: page, title: title, live: !counts && !t.Finished, data: &t}, err
}

func (d *Dashboard) errors(r *http.Request) (view, error) {
	c := choiceOf(r.URL.Query())
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	var names []string
	var still []observe.Pipeline
	for i := range state.Pipelines {
		names = append(names, state.Pipelines[i].Name)
	}
	for _, p := range unwell(state.Pipelines) {
		if c.Pipeline == "" || c.Pipeline == p.Name {
			still = append(still, p)
		}
	}
	list, err := d.o.Service.Errors(r.Context(), c.pipelines())
	const most = 40 // of each, to limit the length of the page
	more := max(len(list)-most, 0) + max(len(still)-most, 0)
	list, still = list[:min(most, len(list))], still[:min(most, len(still))]
	return view{page: "errors", title: "Errors", live: true, data: map[string]any{
		"Groups": list, "Pipelines": names, "Choice": c, "Unwell": still, "More": more,
	}}, err
}

// export writes all dead letters as JSON lines.
func (d *Dashboard) export(w http.ResponseWriter, r *http.Request) {
	c := choiceOf(r.URL.Query())
	c.State = "failed"
	f, err := c.filter()
	out := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	q := admin.TaskQuery{Pipelines: c.pipelines(), TaskFilter: f, Limit: exportPage}
	for begun := false; err == nil; begun = true {
		var found admin.TaskPage
		if found, err = d.o.Service.Tasks(r.Context(), q); err != nil {
			break
		}
		if !begun {
			w.Header().Set("Content-Type", ndjson)
			w.Header().Set("Content-Disposition", `attachment; filename="dead-letters.ndjson"`)
		}
		_ = out.SetWriteDeadline(time.Now().Add(time.Minute))
		for i := range found.Tasks {
			if err := encoder.Encode(&found.Tasks[i]); err != nil {
				return // the client has gone
			}
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			return
		}
	}
	if w.Header().Get("Content-Type") == ndjson {
		panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
	}
	d.render(w, r, d.failed(r.Context(), err))
}

const ndjson = "application/x-ndjson"
