package observe

import (
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

// Database is how things stand by the tables, whoever runs.
type Database struct {
	Slots     []report.Slot    `json:"slots"`
	Sidecars  []report.Sidecar `json:"sidecars"`
	Pipelines []Pipeline       `json:"pipelines"`
	// what of the configurations of sidecars that run is not in force
	Configuration []report.Configuration `json:"configuration"`
	// number and age of rows by pipeline, priority and state, where that was asked for: all of them are counted
	Lanes []report.Lane `json:"lanes,omitempty"`
}

// Pipeline is a pipeline with the indexes over its vectors.
type Pipeline struct {
	report.Pipeline

	Indexes []indexes.Index `json:"indexes"` // null: they cannot be looked at now
	// rows that failed by class and code, the most frequent first, with one of each
	Errors []report.ErrorGroup `json:"errors"`
}

// Memory is what somebody who asks again and again need not ask anew. Its zero value remembers nothing yet.
type Memory struct {
	Counts report.Counts

	changed resolve.Loader
}

// Read asks the tables how things stand; memory may be nil. Who has one asks again and again. redact takes what is
// secret out of messages.
func Read(ctx context.Context, pool *pgxpool.Pool, memory *Memory, redact func(string) string) (Database, error) {
	again := memory != nil
	if !again {
		memory = &Memory{}
	}
	memory.changed.Changed = true
	// What tells where the vectors are is read meanwhile: of many pipelines that takes long.
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

// withIndexes looks at the indexes of the pipelines that work. What cannot be looked at is left out: where a pipeline
// stands is told all the same.
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
		if p.IntoSchema == "" {
			p.IntoSchema = p.Schema // the embedding table did not move with the source
		}
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

// worstOf returns the first of those that need somebody most.
func worstOf(list []indexes.Index) indexes.Index {
	worst := list[0]
	for _, i := range list[1:] {
		if i.State.Worse(worst.State) {
			worst = i
		}
	}
	return worst
}

// Causes returns why rows failed of the pipelines that have some, by class and code.
func Causes(ctx context.Context, pool *pgxpool.Pool, pipelines []report.Pipeline, redact func(string) string,
) ([]report.ErrorGroup, error) {
	names := unlucky(pipelines)
	if len(names) == 0 {
		return nil, nil
	}
	list, err := report.Errors(ctx, pool, names)
	for i := range list {
		list[i].Message = redact(list[i].Message)
	}
	return list, err
}

// unlucky are the names of the pipelines that have rows which failed.
func unlucky(pipelines []report.Pipeline) []string {
	var names []string
	for i := range pipelines {
		if pipelines[i].Failed+pipelines[i].Retrying > 0 {
			names = append(names, pipelines[i].Name)
		}
	}
	return names
}

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
