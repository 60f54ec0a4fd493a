package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
)

// Remarks are what somebody should know, or do something about: of each pipeline in one sentence, and once of what
// holds for all; then of rows that failed, and of indexes. Names in them are as they are.
func (d *Database) Remarks() []string {
	var list []string
	for i := range d.Configuration {
		list = append(list, d.Configuration[i].Line())
	}
	list = append(list, d.unwell()...)
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		if left := p.Rows - p.Known; left > 0 && p.State == health.UpToDate && !p.RowsEstimated {
			list = append(list, fmt.Sprintf("%s: %s not looked at; if that stays so, embedsidecar verify %s tells which and why",
				p.Name, wording.Count(left, "row"), health.Quoted(p.Name)))
		}
	}
	for i := range d.Pipelines {
		if line := d.Pipelines[i].CutLine(); line != "" {
			list = append(list, d.Pipelines[i].Name+": "+line)
		}
	}
	for i := range d.Pipelines {
		list = append(list, d.Pipelines[i].causes()...)
	}
	for i := range d.Pipelines {
		list = append(list, d.Pipelines[i].indexRemarks()...)
	}
	return list
}

// SavedLines say what needed no embedder, and why.
func (d *Database) SavedLines() []string {
	var list []string
	for i := range d.Pipelines {
		list = append(list, d.Pipelines[i].SavedLine(), d.Pipelines[i].SearchLine())
	}
	for i := range d.Slots {
		list = append(list, d.Slots[i].SavedLine())
	}
	return slices.DeleteFunc(list, func(line string) bool { return line == "" })
}

// unwell says of the pipelines that are not at work why, each sentence once.
func (d *Database) unwell() []string {
	var list []string
	said := map[string][]string{} // pipelines by sentence
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		if p.AtWork() {
			continue
		}
		sentence := p.Health().String()
		if said[sentence] == nil {
			list = append(list, sentence)
		}
		said[sentence] = append(said[sentence], p.Name)
	}
	for i, sentence := range list {
		list[i] = strings.Join(said[sentence], ", ") + ": " + sentence
	}
	return list
}

// causes tells each cause of rows that failed once, with one of them, and when that is tried again.
func (p *Pipeline) causes() []string {
	list := make([]string, len(p.Errors))
	for i := range p.Errors {
		g := &p.Errors[i]
		list[i] = g.Line()
		for k := range p.FailedRows {
			if f := &p.FailedRows[k]; f.Key == g.Key && f.NextTrySeconds != nil {
				list[i] += " (next try " + f.NextTry() + ")"
			}
		}
	}
	return list
}

// IndexWord is a word for the indexes of the pipeline: the worst of them; "" where there is nothing to say.
func (p *Pipeline) IndexWord() string {
	if len(p.Indexes) == 0 {
		return ""
	}
	worst := worstOf(p.Indexes)
	switch {
	case worst.State == indexes.Ready:
		return worst.Method
	case worst.State == indexes.Building && worst.Percent != nil:
		return fmt.Sprintf("building %.0f%%", *worst.Percent)
	}
	return string(worst.State)
}

// indexRemarks are what somebody should do about the indexes of the pipeline.
func (p *Pipeline) indexRemarks() []string {
	var list []string
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
	return list
}
