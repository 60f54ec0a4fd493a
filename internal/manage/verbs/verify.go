package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Bad returns an error with the names of the pipelines that failed verification; nil if none did.
func Bad(list []Verified) error {
	var bad []string
	for i := range list {
		if !list[i].Good() {
			bad = append(bad, list[i].Pipeline)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return problem.New(problem.Failed, fmt.Errorf("verification failed: %s", strings.Join(bad, ", ")),
		"rows that wait for a vector count as defects: run embedsidecar wait --caught-up and verify again")
}

// VerifyOptions configure a verification.
type VerifyOptions struct {
	Deep    int             // rows of each pipeline to embed again
	Plugins *embedders.Pool // for Deep
	Repair  bool            // re-queue the rows with defects
	Log     *slog.Logger
}

// Verified is the result for one pipeline.
type Verified struct {
	Pipeline string `json:"pipeline"`
	OK       bool   `json:"ok"`
	worker.Report
	Problem string   `json:"problem,omitempty"` // why it could not be verified
	Repairs *Repairs `json:"repairs,omitempty"` // the repairs that were queued
}

// Verdict summarizes the result in a few words.
func (v *Verified) Verdict() string {
	verdict := "ok"
	if v.Problem != "" {
		verdict = v.Problem
	} else if !v.OK {
		verdict = "not ok"
	}
	if v.Repairs != nil && v.Repairs.Looks+v.Repairs.Anew > 0 {
		verdict += fmt.Sprintf(", %d queued", v.Repairs.Looks+v.Repairs.Anew)
	}
	return verdict
}

// Good reports whether the pipeline is correct, or all defects were queued for repair.
func (v *Verified) Good() bool {
	return v.OK || v.Repairs != nil && v.Problem == "" &&
		v.Missing+v.Stale+v.Orphans+v.Refused+v.Differ == v.Repairs.Looks+v.Repairs.Anew
}

// Repairs counts what was queued to repair the defects found.
type Repairs struct {
	Looks int64 `json:"looks"` // rows, or vectors without a row, to be checked again
	Anew  int64 `json:"anew"`  // rows to be embedded again
	Scan  bool  `json:"scan"`  // too many for single keys: every row is compared

	looks, anew []string
}

// mostNamed is how many rows to be checked again are queued by their keys. For more, a scan is requested, which keeps a
// bounded number of tasks open.
const mostNamed = 4000

// found records a row to repair. A scan finds no row that is to be embedded again; these are rows of the sample.
func (r *Repairs) found(key string, anew bool) {
	if anew {
		if r.Anew++; len(r.anew) == 0 || r.anew[len(r.anew)-1] != key { // a row may have several chunks that differ
			r.anew = append(r.anew, key)
		}
		return
	}
	if r.Looks++; len(r.looks) < mostNamed {
		r.looks = append(r.looks, key)
	}
}

// Verify checks that the vectors of the named pipelines, or of all, match the texts of their rows.
func (a *Actor) Verify(ctx context.Context, names []string, o VerifyOptions) ([]Verified, error) {
	found, err := lookup.Named(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	var list []Verified
	for i := range found {
		v, err := a.verify(ctx, &found[i], o)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (a *Actor) verify(ctx context.Context, p *pipeline.Pipeline, o VerifyOptions) (Verified, error) {
	v := Verified{Pipeline: p.Name}
	if p.Status != pipeline.Active {
		v.Problem = string(p.Status) + ": " + p.Detail
		return v, nil
	}
	var embedder embed.Embedder // used only with Deep
	if o.Deep > 0 {
		h, err := o.Plugins.Matching(ctx, p)
		if err != nil {
			return v, err
		}
		embedder = h
	}
	wo := worker.Options{
		Pipeline: p, DB: a.pool, Queue: queue.New(a.pool), Service: embed.NewService(embedder, 0), Log: o.Log,
	}
	if o.Repair {
		v.Repairs = &Repairs{}
		wo.Found = v.Repairs.found
	}
	var err error
	if v.Report, err = worker.New(wo).Verify(ctx, o.Deep); err != nil {
		if _, refused := errors.AsType[*pgconn.PgError](err); !refused || ctx.Err() != nil {
			return v, err
		}
		v.Problem = database.Words(err) // the other pipelines are still verified
	}
	v.OK = err == nil && v.Report.OK()
	if o.Repair {
		if err := a.repair(ctx, v.Repairs, p); err != nil {
			return v, err
		}
	}
	v.Examples = append([]string{}, v.Examples...)
	return v, nil
}

// repair queues the rows with defects for the workers.
func (a *Actor) repair(ctx context.Context, r *Repairs, p *pipeline.Pipeline) error {
	if len(r.anew) > 0 {
		if _, err := a.Do(ctx, Reembed, []string{p.Name}, Request{Keys: r.anew}); err != nil {
			return err
		}
	}
	if r.Scan = r.Looks > mostNamed; r.Scan {
		return refused(queue.RequestScan(ctx, a.pool, "verify --repair", []int32{p.ID}))
	}
	return refused(queue.Add(ctx, a.pool, p.ID, p.Priority, r.looks))
}
