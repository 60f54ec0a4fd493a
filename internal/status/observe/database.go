package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Database is the state according to the tables, whichever processes run.
type Database struct {
	Slots     []report.Slot    `json:"slots"`
	Sidecars  []report.Sidecar `json:"sidecars"`
	Pipelines []Pipeline       `json:"pipelines"`
	// the parts of the configurations of running sidecars that are not in force
	Configuration []report.Configuration `json:"configuration"`
	// on request: number and age of all rows by pipeline, priority and state
	Lanes []report.Lane `json:"lanes,omitempty"`
}

// Pipeline is a pipeline with the indexes on its vectors.
type Pipeline struct {
	report.Pipeline

	Indexes []indexes.Index `json:"indexes"` // null: they cannot be read now
	// failed rows by class and code, the most frequent first, with an example
	Errors []report.ErrorGroup `json:"errors"`
}

// Memory caches what repeated reads need not query again. Its zero value is empty.
type Memory struct {
	Counts report.Counts

	changed resolve.Loader
}

// Read reads the state from the tables. A caller that reads repeatedly passes a memory, which otherwise is nil. redact
// removes secrets from messages.
func Read(ctx context.Context, pool *pgxpool.Pool, memory *Memory, redact func(string) string) (Database, error) {
	again := memory != nil
	if !again {
		memory = &Memory{}
	}
	memory.changed.Changed = true
	// The places of the vectors are read concurrently, because that takes long with many pipelines.
	var stored []resolve.Stored
	var beside sync.WaitGroup
	beside.Go(func() { stored, _ = resolve.ReadStored(ctx, pool) })
	load := func(ctx context.Context) ([]pipeline.Pipeline, error) {
		return lookup.AllBy(ctx, &memory.changed, pool)
	}
	state, err := report.Options{Counts: &memory.Counts, AtOnce: again, Load: load}.Read(ctx, pool)
	beside.Wait()
	if err != nil {
		return Database{}, err
	}
	groups, err := Causes(ctx, pool, state.Pipelines, redact)
	if err != nil {
		return Database{}, err
	}
	list, at := withIndexes(ctx, pool, state.Pipelines, stored), map[string]*Pipeline{}
	for i := range list {
		p := &list[i]
		p.Errors = []report.ErrorGroup{}
		at[p.Name] = p
	}
	for _, g := range groups {
		if p := at[g.Pipeline]; p != nil {
			p.Errors = append(p.Errors, g)
		}
	}
	configured, err := report.Configurations(ctx, pool)
	if err != nil {
		return Database{}, err
	}
	return Database{
		append([]report.Slot{}, state.Slots...), append([]report.Sidecar{}, state.Sidecars...), list,
		append([]report.Configuration{}, configured...), nil,
	}, nil
}

// withIndexes adds the indexes of the pipelines that work. It leaves out indexes that cannot be read.
func withIndexes(ctx context.Context, pool *pgxpool.Pool, pipelines []report.Pipeline, stored []resolve.Stored,
) []Pipeline {
	list, at := make([]Pipeline, len(pipelines)), map[int32]int{}
	for i := range pipelines {
		list[i].Pipeline = pipelines[i]
		if pipelines[i].Status == string(pipeline.Active) {
			at[pipelines[i].ID] = i
		}
	}
	var looked []*pipeline.Pipeline
	for i := range stored {
		p := resolve.Off(stored[i].Current())
		n, works := at[p.ID]
		if !works {
			continue
		}
		p.IntoSchema = cmp.Or(p.IntoSchema, p.Schema) // the embedding table did not move with the source table
		p.Schema, p.Table = pipelines[n].Schema, pipelines[n].Table
		looked = append(looked, &p)
	}
	found, err := indexes.OfAll(ctx, pool, looked)
	for i, p := range looked {
		if err == nil {
			list[at[p.ID]].Indexes = found[i]
		}
	}
	return list
}

// worstOf returns the first index with the worst state.
func worstOf(list []indexes.Index) indexes.Index {
	worst := list[0]
	for _, i := range list[1:] {
		if i.State.Worse(worst.State) {
			worst = i
		}
	}
	return worst
}

// Causes returns the errors of the pipelines that have failed rows, by class and code.
func Causes(ctx context.Context, pool *pgxpool.Pool, pipelines []report.Pipeline, redact func(string) string,
) ([]report.ErrorGroup, error) {
	var names []string
	for i := range pipelines {
		if pipelines[i].Failed+pipelines[i].Retrying > 0 {
			names = append(names, pipelines[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	list, err := report.Errors(ctx, pool, names)
	for i := range list {
		list[i].Message = redact(list[i].Message)
	}
	return list, err
}

// Remarks lists what a user should know or do: one sentence for each pipeline, sentences for all only once, then failed
// rows, then indexes. Names in them are not escaped.
func (d *Database) Remarks() []string {
	var list []string
	for i := range d.Configuration {
		list = append(list, d.Configuration[i].Line())
	}
	list = append(list, d.unwell()...)
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		if left := p.Rows - p.Known; left > 0 && p.State == health.UpToDate && !p.RowsEstimated {
			list = append(list, fmt.Sprintf("%s: %s not looked at; if this persists, embedsidecar verify %s shows which and why",
				p.Name, wording.Count(left, "row"), health.Argument(p.Name)))
		}
	}
	for i := range d.Pipelines {
		if line := d.Pipelines[i].CutLine(); line != "" {
			list = append(list, d.Pipelines[i].Name+": "+line)
		}
	}
	for i := range d.Pipelines {
		for k := range d.Pipelines[i].Errors {
			list = append(list, d.Pipelines[i].Errors[k].Line())
		}
	}
	for i := range d.Pipelines {
		list = append(list, d.Pipelines[i].indexRemarks()...)
	}
	return list
}

// SavedLines describe what needed no embedder call, and why.
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

// unwell describes why pipelines are not at work, each sentence once.
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

// IndexWord returns a word for the worst index of the pipeline; "" if there is nothing to report.
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

// indexRemarks describes what to do about the indexes of the pipeline.
func (p *Pipeline) indexRemarks() []string {
	var list []string
	for _, i := range p.Indexes {
		sql := strings.Join(i.SQL, " ")
		switch i.State {
		case indexes.Invalid:
			list = append(list, fmt.Sprintf("%s: the build of index %s was interrupted: %s", p.Name, i.Name, sql))
		case indexes.Other:
			list = append(list, fmt.Sprintf("%s: index %s: %s", p.Name, i.Name, i.Detail))
		case indexes.None:
			if i.Large() && sql != "" {
				list = append(list, fmt.Sprintf("%s: each search reads about %d vectors; after the backfill: %s", p.Name,
					*i.Rows, sql))
			}
		case indexes.Building:
			list = append(list, fmt.Sprintf("%s: index %s is being built%s", p.Name, i.Name, i.Progress()))
		case indexes.Ready:
		}
	}
	return list
}
