package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/indexes"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/report"
)

// statusDocument is what status prints as JSON and YAML.
type statusDocument struct {
	Slots     []report.Slot    `json:"slots"`
	Sidecars  []report.Sidecar `json:"sidecars"`
	Pipelines []statusPipeline `json:"pipelines"`
}

// statusPipeline is a pipeline with the indexes over its vectors.
type statusPipeline struct {
	report.Pipeline

	Indexes    []indexes.Index    `json:"indexes"`     // null: they cannot be looked at now
	FailedRows []report.FailedRow `json:"failed_rows"` // the first few; embedsidecar failed lists all
}

// withIndexes looks at the indexes of the pipelines that work. What cannot be looked at is left out: where a pipeline
// stands is told all the same.
func withIndexes(ctx context.Context, pool *pgxpool.Pool, pipelines []report.Pipeline, loaded []pipeline.Pipeline,
	failed []report.FailedRow,
) []statusPipeline {
	list := make([]statusPipeline, len(pipelines))
	for i := range pipelines {
		list[i].Pipeline, list[i].FailedRows = pipelines[i], []report.FailedRow{}
		for _, f := range failed {
			if f.Pipeline == pipelines[i].Name {
				list[i].FailedRows = append(list[i].FailedRows, f)
			}
		}
		at := slices.IndexFunc(loaded, func(p pipeline.Pipeline) bool { return p.ID == pipelines[i].ID })
		if at < 0 || loaded[at].Status != pipeline.Active {
			continue
		}
		if found, err := indexes.Of(ctx, pool, &loaded[at]); err == nil {
			list[i].Indexes = found
		}
	}
	return list
}

// worstIndex returns the first of those that need somebody most.
func worstIndex(list []indexes.Index) indexes.Index {
	worst := list[0]
	for _, i := range list[1:] {
		if i.State.Worse(worst.State) {
			worst = i
		}
	}
	return worst
}

// indexWord is a cell for the indexes of a pipeline: the worst of them.
func indexWord(list []indexes.Index) string {
	if len(list) == 0 {
		return ""
	}
	worst := worstIndex(list)
	switch {
	case worst.State == indexes.Ready:
		return worst.Method
	case worst.State == indexes.Building && worst.Percent != nil:
		return fmt.Sprintf("building %.0f%%", *worst.Percent)
	}
	return string(worst.State)
}

// indexRemarks are what somebody should do about indexes.
func indexRemarks(pipelines []statusPipeline) []string {
	var list []string
	for _, p := range pipelines {
		for _, i := range p.Indexes {
			sql := strings.Join(i.SQL, " ")
			switch i.State {
			case indexes.Invalid:
				list = append(list, fmt.Sprintf("%s: the build of index %s was broken off: %s", p.Name, i.Name, sql))
			case indexes.Other:
				list = append(list, fmt.Sprintf("%s: index %s: %s", p.Name, i.Name, i.Detail))
			case indexes.None:
				if i.Large() && sql != "" {
					list = append(list, fmt.Sprintf("%s: each search reads about %d vectors; when the backfill is done: %s", p.Name,
						*i.Rows, sql))
				}
			case indexes.Building:
				list = append(list, fmt.Sprintf("%s: index %s is being built%s", p.Name, i.Name, i.Progress()))
			case indexes.Ready:
			}
		}
	}
	return list
}
