package main

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/indexes"
	"github.com/embedsidecar/embedsidecar/internal/node/observe"
)

// indexWord is a cell for the indexes of a pipeline: the worst of them.
func indexWord(list []indexes.Index) string {
	if len(list) == 0 {
		return ""
	}
	worst := observe.Worst(list)
	switch {
	case worst.State == indexes.Ready:
		return worst.Method
	case worst.State == indexes.Building && worst.Percent != nil:
		return fmt.Sprintf("building %.0f%%", *worst.Percent)
	}
	return string(worst.State)
}

// indexRemarks are what somebody should do about indexes.
func indexRemarks(pipelines []observe.Pipeline) []string {
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
