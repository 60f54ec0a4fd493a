package report

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/spread"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Window is a period of time until now.
type Window struct {
	Name    string
	Length  time.Duration
	Step    time.Duration // length of a point
	Minutes int           // length of each stored row that is read
}

// Windows are the periods that measurements are kept for.
var Windows = []Window{
	{"1h", time.Hour, time.Minute, 1},
	{"24h", 24 * time.Hour, 20 * time.Minute, 10},
	{"7d", 7 * 24 * time.Hour, 2 * time.Hour, 10},
}

// Did is what pipelines did in a period.
type Did struct {
	Embedded int64    `json:"rows_embedded" doc:"Rows that got a vector from the embedder"`
	Reused   int64    `json:"rows_reused" doc:"Rows that got a known vector"`
	Failed   int64    `json:"rows_failed" doc:"Rows that became dead letters"`
	Rate     float64  `json:"rows_per_second" doc:"Rows that got a vector"`
	Texts    int64    `json:"texts_embedded" doc:"Texts sent to the embedder"`
	Tokens   int64    `json:"tokens" doc:"Tokens reported by the embedder"`
	Price    float64  `json:"price" doc:"Price of the tokens at the model's price of that time; 0: none configured"`
	Backlog  int64    `json:"backlog" doc:"Maximum number of waiting rows"`
	P50      *float64 `json:"freshness_p50_seconds" doc:"Median time from commit to vector; null: no rows"`
	P99      *float64 `json:"freshness_p99_seconds" doc:"The same for 99 of 100 rows"`

	fresh spread.Counts
}

// Point is what they did in one step of a window.
type Point struct {
	At      time.Time `json:"at" doc:"Start"`
	Seconds float64   `json:"seconds" doc:"Length"`
	Did
}

// Past is what pipelines did in a window.
type Past struct {
	Window    string    `json:"window"`
	Currency  string    `json:"currency,omitempty" doc:"Currency of prices in the present configuration"`
	Pipelines []string  `json:"pipelines,omitempty" doc:"Pipelines; absent: all, including removed ones"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Total     Did       `json:"total" doc:"Totals of the window"`
	Points    []Point   `json:"points" doc:"Points, the oldest first"`
}

// measured is a stored row of measurements.
type measured struct {
	Began                                   time.Time
	Embedded, Reused, Failed, Texts, Tokens int64
	Price                                   float64
	Backlog                                 int64
	Fresh                                   []int32
}

// ReadPast returns the past of the named pipelines; nil: of all together.
func (w Window) ReadPast(ctx context.Context, db database.DB, names []string) (Past, error) {
	var now time.Time
	if err := db.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return Past{}, fmt.Errorf("read measurements: %w", err)
	}
	// A sidecar stores the measurements of a minute within six seconds after it, or a little later on a busy host.
	past := w.past(now.Add(-20*time.Second), names)
	list, err := collect(ctx, db, "read measurements", pgx.RowToStructByPos[measured], "read_measures",
		pgx.StrictNamedArgs{"names": names, "minutes": w.Minutes, "since": past.From})
	if err != nil {
		return past, err
	}
	past.fill(w, list)
	return past, nil
}

// past returns an empty window. It ends with the last whole minute.
func (w Window) past(now time.Time, names []string) Past {
	to := now.UTC().Truncate(time.Minute)
	from := to.Add(w.Step - 1).Truncate(w.Step).Add(-w.Length)
	past := Past{Window: w.Name, Pipelines: names, From: from, To: to, Points: []Point{}}
	for at := from; at.Before(to); at = at.Add(w.Step) {
		past.Points = append(past.Points, Point{At: at, Seconds: min(w.Step, to.Sub(at)).Seconds()})
	}
	return past
}

// fill adds measurements. The backlogs of several pipelines in the same minutes are summed.
func (p *Past) fill(w Window, list []measured) {
	waited := map[time.Time]int64{}
	for i := range list {
		m := &list[i]
		at := int(m.Began.Sub(p.From) / w.Step)
		if m.Began.Before(p.From) || at >= len(p.Points) {
			continue
		}
		waited[m.Began] += m.Backlog
		for _, d := range []*Did{&p.Points[at].Did, &p.Total} {
			d.Embedded, d.Reused, d.Failed = d.Embedded+m.Embedded, d.Reused+m.Reused, d.Failed+m.Failed
			d.Texts, d.Tokens, d.Price = d.Texts+m.Texts, d.Tokens+m.Tokens, d.Price+m.Price
			d.Backlog = max(d.Backlog, waited[m.Began])
			d.fresh = d.fresh.Add(spread.Of(m.Fresh))
		}
	}
	for i := range p.Points {
		p.Points[i].end(p.Points[i].Seconds)
	}
	p.Total.end(p.To.Sub(p.From).Seconds())
}

// end computes the rate and the freshness.
func (d *Did) end(seconds float64) {
	d.Rate = float64(d.Embedded+d.Reused) / seconds
	for q, into := range map[float64]**float64{0.5: &d.P50, 0.99: &d.P99} {
		if s, ok := d.fresh.Quantile(q); ok {
			*into = &s
		}
	}
}
