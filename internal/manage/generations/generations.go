// Package generations lists and switches the generations of a pipeline: the one that serves searches, and the next or
// the previous one beside it. Functions of the schema perform the actions, so that command line, HTTP and SQL do the
// same. Package setup makes the next generation.
package generations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
)

// Generation is a row of the view generations.
type Generation struct {
	Pipeline     string   `json:"pipeline"`
	Role         string   `json:"role" doc:"serves, next or previous"`
	PipelineID   int32    `json:"pipeline_id" doc:"Its number, which a switch does not change"`
	Model        string   `json:"model"`
	Plugin       string   `json:"plugin"`
	Dims         int      `json:"dims"`
	Fingerprint  string   `json:"fingerprint"`
	Destination  string   `json:"destination"`
	State        string   `json:"state" doc:"docs/states.md"`
	Reason       string   `json:"reason"`
	Hints        []string `json:"hints"`
	Pending      int64    `json:"pending" doc:"Rows that wait for it or are being embedded"`
	Failed       int64    `json:"failed"`
	ScanPhase    string   `json:"scan_phase" doc:"Of its backfill: waiting, rows, orphans or done"`
	ScanSeen     int64    `json:"scan_seen"`
	ScanExpected int64    `json:"scan_expected"`
	Lacks        []string `json:"lacks" doc:"Why it cannot serve yet; empty: it can; null: it serves"`
	Bytes        *int64   `json:"bytes" doc:"Size of its embedding table with indexes; null: it uses a column"`
	Wanted       *string  `json:"wanted" doc:"The model requested by SQL or HTTP, until its generation is made"`
	Problem      *string  `json:"problem" doc:"Why the requested generation was not made"`
	Differs      *string  `json:"differs" doc:"Differences from the serving one: model, weights, text, chunking, type"`

	Overlap      *float64   `json:"overlap" doc:"Share of the first ten rows that both find, if switch: auto has a minimum"`
	OverlapLeast *float64   `json:"overlap_least" doc:"Minimum overlap for an automatic switch"`
	ComparedAt   *time.Time `json:"compared_at"`
}

// Share returns the completed part of its backfill, from 0 to 1.
func (g *Generation) Share() float64 {
	if len(g.Lacks) == 0 || g.ScanExpected == 0 {
		return 1
	}
	looked := float64(g.ScanSeen)
	if g.ScanPhase == "done" {
		looked = float64(g.ScanExpected)
	}
	return max(0, min(1, (looked-float64(g.Pending))/float64(g.ScanExpected)))
}

// Words describes what it lacks, or the result of a requested change.
func (g *Generation) Words() string {
	if g.Wanted != nil {
		words := "change to " + *g.Wanted + " asked for"
		if g.Problem != nil {
			words += ", and refused: " + *g.Problem
		}
		return words
	}
	words := strings.Join(g.Lacks, "; ")
	if words == "" && g.Role == "next" && g.Overlap != nil && g.OverlapLeast != nil && *g.Overlap < *g.OverlapLeast {
		words = fmt.Sprintf("not switched by itself: overlap at 10 is %.2f, below %.2f", *g.Overlap, *g.OverlapLeast)
	}
	return words
}

// States returns the generations of a pipeline, the serving one first; without a name, those of all pipelines.
func States(ctx context.Context, pool *pgxpool.Pool, pipeline string) ([]Generation, error) {
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return nil, err
	}
	var name *string
	if pipeline != "" {
		name = &pipeline
	}
	rows, _ := pool.Query(ctx, "SELECT * FROM embedsidecar.generation_states($1)", name)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Generation])
	return list, Told(err)
}

// Plan describes the cost and the result of a change of the model.
type Plan struct {
	estimate.Estimate

	From     string   `json:"from"`
	To       string   `json:"to"`
	Dims     int      `json:"dims"`
	Makes    []string `json:"makes"`
	Locks    []string `json:"locks"`
	Depends  []string `json:"depends" doc:"Objects that depend on the present vectors: what the switch recreates, and what the owner must handle"`
	Warnings []string `json:"warnings"`
	Words    string   `json:"words" doc:"The estimate on one line"`
}

// Dependents lists what depends on the present vectors of a pipeline, and what a switch does with it. Without another
// generation, pass the pipeline's number twice: what that one lacks is known only when it exists.
func Dependents(ctx context.Context, pool *pgxpool.Pool, live, other int32) ([]string, error) {
	rows, _ := pool.Query(ctx, "SELECT t.what || CASE WHEN t.remake IS NOT NULL THEN ': recreated by the switch' "+
		"ELSE ': before the switch: ' || t.sql END FROM embedsidecar.generation_ties($1, $2) AS t", live, other)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append([]string{}, list...), Told(err)
}

// Act is an action on the generations of a pipeline. The command, the HTTP route and the word in the audit are derived
// from it. A function of the schema with its name performs it.
type Act struct {
	Name               string // after the word model
	Usage, Description string
	Force              bool // it can be forced
}

// The actions.
var (
	Switch = &Act{
		Name: "switch", Force: true, Usage: "make the next generation of a pipeline serve",
		Description: "In one short transaction its vectors get the name of the present ones, and its model embeds queries " +
			"from then on. Refused until the next generation is complete. The previous generation is kept up to date until " +
			"model drop-old. For the moment when model status says that it can serve.",
	}
	Rollback = &Act{
		Name: "rollback", Force: true, Usage: "make the previous generation of a pipeline serve again",
		Description: "The reverse of model switch, and as fast, while the previous generation is kept. For a model that " +
			"turned out worse.",
	}
	DropOld = &Act{
		Name: "drop-old", Usage: "remove the generation of a pipeline that does not serve",
		Description: "Drops its vectors: the previous generation after a switch, or a next one that is abandoned. This " +
			"cannot be undone. For the end of a change.",
	}
	// Change requests a next generation, which a sidecar makes. Its command makes it by itself.
	Change = &Act{Name: "change", Usage: "request the next generation of a pipeline, with another model"}
)

// Acts lists the actions that need no model.
var Acts = []*Act{Switch, Rollback, DropOld}

// Request is an action on a pipeline.
type Request struct {
	Do            *Act
	Pipeline      string
	Model, Plugin string // of Change
	Force         bool   // even if rows are stale or failed, or an index is missing
	DryRun        bool
	By            string // the name in the audit
}

// Do performs the action and returns its result word.
func Do(ctx context.Context, pool *pgxpool.Pool, r Request) (result string, err error) {
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return "", err
	}
	more, args := "", pgx.StrictNamedArgs{"pipeline": r.Pipeline, "dry_run": r.DryRun, "said_by": r.By}
	switch {
	case r.Do.Force:
		more, args["force"] = ", force => @force", r.Force
	case r.Do == Change:
		more, args["model"], args["plugin"] = ", model => @model, plugin => nullif(@plugin, '')", r.Model, r.Plugin
	}
	err = pool.QueryRow(ctx, fmt.Sprintf("SELECT embedsidecar.model_%s(pipeline => @pipeline, dry_run => @dry_run, "+
		"said_by => @said_by%s)", strings.ReplaceAll(r.Do.Name, "-", "_"), more), args).Scan(&result)
	return result, Told(err)
}

// Told adds the class and the hints to an error raised by a function of the schema.
func Told(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	class, known := map[string]problem.Class{
		pgerrcode.ObjectNotInPrerequisiteState: problem.Failed, pgerrcode.DependentObjectsStillExist: problem.Failed,
		pgerrcode.ObjectInUse: problem.Conflict, pgerrcode.InsufficientPrivilege: problem.Permission,
		pgerrcode.UndefinedObject: problem.Usage, pgerrcode.InvalidParameterValue: problem.Usage,
		pgerrcode.NullValueNotAllowedDataException: problem.Usage, pgerrcode.DuplicateObject: problem.Conflict,
		pgerrcode.ProgramLimitExceeded: problem.Usage,
	}[pg.Code]
	if !known {
		return err
	}
	var hints []string
	for _, hint := range []string{pg.Detail, pg.Hint} {
		if hint != "" {
			hints = append(hints, hint)
		}
	}
	return problem.New(class, errors.New(pg.Message), hints...)
}
