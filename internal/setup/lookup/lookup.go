// Package lookup finds the pipelines that somebody means: those that are set up in the database, and those that the
// configuration has.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

type onceKey struct{}

// Once is the context of who asks several things of the same pipelines at once: Named loads those of each names once.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, &sync.Map{}) }

// Named returns the pipelines of these names, or all when there are none, whatever their slot.
func Named(ctx context.Context, pool *pgxpool.Pool, names []string) ([]pipeline.Pipeline, error) {
	kept, once := ctx.Value(onceKey{}).(*sync.Map)
	if !once {
		return load(ctx, pool, names)
	}
	key := strings.Join(names, "\x00")
	if found, is := kept.Load(key); is {
		list, _ := found.([]pipeline.Pipeline)
		return slices.Clone(list), nil
	}
	found, err := load(ctx, pool, names)
	if err == nil {
		kept.Store(key, found)
	}
	return slices.Clone(found), err
}

func load(ctx context.Context, pool *pgxpool.Pool, names []string) ([]pipeline.Pipeline, error) {
	var l *resolve.Loader
	known, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if meant, err := named(known, names); err == nil { // else a table of that name may have been called otherwise
			l = &resolve.Loader{Only: lists.Map(meant, func(p pipeline.Pipeline) int32 { return p.ID })}
		}
	}
	all, err := ofSlots(ctx, l, pool)
	if err != nil {
		return nil, err
	}
	return named(all, names)
}

// named returns those of all that have these names, or all when there are none.
func named(all []pipeline.Pipeline, names []string) ([]pipeline.Pipeline, error) {
	if len(names) == 0 {
		return all, some(all)
	}
	var found []pipeline.Pipeline
	for _, name := range names {
		at := Meant(all, name)
		if at < 0 {
			return nil, refusal.UnknownPipeline(name, Names(all))
		}
		found = append(found, all[at])
	}
	return found, nil
}

// some returns an error where there is no pipeline.
func some(all []pipeline.Pipeline) error {
	if len(all) > 0 {
		return nil
	}
	return problem.New(problem.NotSetUp, errors.New("no pipeline is set up in this database"),
		"embedsidecar init sets them up")
}

// Names are those of pipelines.
func Names(pipelines []pipeline.Pipeline) []string {
	names := make([]string, len(pipelines))
	for i := range pipelines {
		names[i] = pipelines[i].Name
	}
	return names
}

// BriefRows returns the pipelines of these names as Chosen does, or one pipeline and the keys after it: what stands
// behind the first name and is no pipeline's is a key.
func BriefRows(ctx context.Context, pool *pgxpool.Pool, words []string) (pipelines []pipeline.Pipeline,
	keys []string, err error,
) {
	all, err := brief(ctx, pool)
	if err != nil {
		return nil, nil, err
	}
	if len(words) > 0 && isChoice(words[0]) && Find(all, words[0]) < 0 {
		pipelines, err = named(all, Matching(all, words))
		return pipelines, nil, err
	}
	if len(words) > 1 && !slices.ContainsFunc(words[1:], func(w string) bool { return Meant(all, w) >= 0 }) {
		words, keys = words[:1], words[1:]
	}
	pipelines, err = named(all, words)
	return pipelines, keys, err
}

// Brief returns all pipelines with no more than their numbers, names, tables and switches: who acts on one need not be
// able to read its table.
func Brief(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	all, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	return all, some(all)
}

// Chosen returns those of Brief with these names, patterns or labels, or all when there are none.
func Chosen(ctx context.Context, pool *pgxpool.Pool, names []string) ([]pipeline.Pipeline, error) {
	all, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	return named(all, Matching(all, names))
}

// isChoice reports whether a word may stand for several pipelines.
func isChoice(word string) bool {
	return config.IsPattern(word) || strings.HasPrefix(word, pipeline.LabelPrefix)
}

// Matching has in the place of a pattern or a label, which is no pipeline's name, the names of those that match: those
// of one schema, say, or of one project. A table that is called like a pattern does not take its place.
func Matching(all []pipeline.Pipeline, names []string) (list []string) {
	for _, name := range names {
		n := len(list)
		if isChoice(name) && Find(all, name) < 0 {
			for i := range all {
				if strings.HasPrefix(name, pipeline.LabelPrefix) && all[i].Labels.Chosen(name) ||
					config.Matches(name, all[i].Name) {
					list = append(list, all[i].Name)
				}
			}
		}
		if len(list) == n {
			list = append(list, name)
		}
	}
	return list
}

func brief(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return nil, err
	}
	rows, _ := pool.Query(ctx, "SELECT pipeline_id, name, table_schema::text, table_name::text, enabled, labels "+
		"FROM embedsidecar.pipeline ORDER BY name") // what an operator may read
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p pipeline.Pipeline, err error) {
		err = row.Scan(&p.ID, &p.Name, &p.Schema, &p.Table, &p.Enabled, &p.Labels)
		return p, err
	})
	return all, wrap.Errorf(err, "list pipelines")
}

// NextGenerations are the names of the pipelines that are the next generation of another one.
func NextGenerations(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, _ := pool.Query(ctx, "SELECT name FROM embedsidecar.pipeline WHERE beside IS NOT NULL")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, wrap.Errorf(err, "list next generations")
}

// OtherSlots tells how to name a slot that is set up.
func OtherSlots(ctx context.Context, pool *pgxpool.Pool) string {
	const hint = "name the slot of the pipelines that are set up: --slot NAME, or EMBEDSIDECAR_SLOT"
	rows, err := pool.Query(ctx, "SELECT slot_name FROM embedsidecar.lsn_checkpoint ORDER BY slot_name")
	if err != nil {
		return hint
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 { // not set up: there is none to name
		return hint
	}
	return hint + "; there are: " + strings.Join(names, ", ")
}

// All returns the pipelines of all slots.
func All(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	return AllBy(ctx, nil, pool)
}

// AllBy is All, which remembers what it has looked at.
func AllBy(ctx context.Context, l *resolve.Loader, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return nil, err
	}
	return ofSlots(ctx, l, pool)
}

func ofSlots(ctx context.Context, l *resolve.Loader, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	rows, _ := pool.Query(ctx, "SELECT slot_name::text FROM embedsidecar.lsn_checkpoint ORDER BY slot_name")
	slots, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	var all []pipeline.Pipeline
	for _, slot := range slots {
		pipelines, err := l.Load(ctx, pool, slot)
		if err != nil {
			return nil, err
		}
		all = append(all, pipelines...)
	}
	return all, nil
}

// Configured returns the pipelines of the configuration. Where it is silent, what is set up already decides: the name
// of a pipeline with the same table and destination, whether somebody has paused it, and the priority that it has.
func Configured(c *config.Config, stored []pipeline.Pipeline) []pipeline.Spec {
	specs := slices.Clone(c.Pipelines)
	for i := range specs {
		spec := &specs[i]
		said := func(key string) bool { return c.Origin(fmt.Sprintf("pipelines[%d].%s", i, key)) != "default" }
		if !said("name") {
			same := slices.IndexFunc(stored, func(p pipeline.Pipeline) bool { return SameEnds(p.Spec, *spec) })
			namesake := Find(stored, spec.Name)
			switch {
			case same >= 0:
				spec.Name = stored[same].Name
			case namesake >= 0 && !replaces(*spec, stored[namesake].Spec):
				spec.Name = config.LongName(*spec)
			}
		}
		at := Find(stored, spec.Name)
		if at < 0 { // init renames it
			at = slices.IndexFunc(stored, func(p pipeline.Pipeline) bool {
				return SameEnds(p.Spec, *spec) && !slices.ContainsFunc(specs,
					func(other pipeline.Spec) bool { return other.Name == p.Name })
			})
		}
		if at < 0 {
			continue
		}
		if !said("enabled") {
			spec.Enabled = stored[at].Enabled
		}
		if !said("priority") {
			spec.Priority = stored[at].Priority
		}
	}
	// Of those in schemas it may not be known which there are.
	return slices.DeleteFunc(specs, func(s pipeline.Spec) bool { return s.Schema == "" })
}

// SameEnds reports whether two pipelines lead from the same table to the same destination.
func SameEnds(a, b pipeline.Spec) bool {
	return a.Schema == b.Schema && a.Table == b.Table && a.Destination() == b.Destination()
}

// replaces reports whether a pipeline with the name of a stored one is that one, whose table is called otherwise now
// and was replaced by another of its name. Nobody gave them the name: it is that of the table.
func replaces(spec, stored pipeline.Spec) bool {
	if spec.Schema == stored.Schema && spec.Table == stored.Table {
		return false
	}
	// An embedding table whose schema nobody has named may have moved along with the source.
	return spec.Destination() == stored.Destination() || spec.IntoSchema == "" && spec.IntoTable != "" &&
		spec.IntoTable == stored.IntoTable
}

// Find returns the place of a pipeline, by its name, or -1.
func Find(pipelines []pipeline.Pipeline, name string) int {
	return slices.IndexFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Name == name })
}

// Meant returns the place of the pipeline that somebody means, or -1: one by this name; or else the one of a table of
// this name, whose schema nobody types: that of public, no matter who makes another of its name in another schema. Of
// several of one table it is the one that is called after it. As embedsidecar.pipeline_meant.
func Meant(pipelines []pipeline.Pipeline, name string) int {
	if at := Find(pipelines, name); at >= 0 {
		return at
	}
	all := func(means func(p *pipeline.Pipeline) bool) (found []int) {
		for i := range pipelines {
			if means(&pipelines[i]) {
				found = append(found, i)
			}
		}
		return found
	}
	found := all(func(p *pipeline.Pipeline) bool { return p.Schema+"."+p.Table == name })
	if len(found) == 0 {
		found = all(func(p *pipeline.Pipeline) bool { return p.Table == name })
	}
	if slices.ContainsFunc(found, func(i int) bool { return pipelines[i].Schema != pipelines[found[0]].Schema }) {
		found = slices.DeleteFunc(found, func(i int) bool { return pipelines[i].Schema != "public" })
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(i int) bool { return !afterTable(&pipelines[i]) })
	}
	if len(found) != 1 {
		return -1
	}
	return found[0]
}

// afterTable reports whether nobody has given a pipeline a name.
func afterTable(p *pipeline.Pipeline) bool { return p.Name == p.Schema+"."+p.Table }

// Of returns the pipelines that a list of names means, as that of a token: all where it names none. A name that is no
// pipeline's any more does not come to mean another of a table of that name.
func Of(all []pipeline.Pipeline, names []string) (of []pipeline.Pipeline) {
	meant := lists.Map(names, func(name string) int {
		at := Meant(all, name)
		if at < 0 || all[at].Name != name && !afterTable(&all[at]) {
			return -1
		}
		return at
	})
	for i := range all {
		if len(names) == 0 || slices.Contains(meant, i) {
			of = append(of, all[i])
		}
	}
	return of
}

// InSchemas returns the configuration with the pipelines that it has in the schemas that there are now. It asks the
// database only where there is a pipeline that is worked in schemas.
func InSchemas(ctx context.Context, db database.Reader, c *config.Config) (*config.Config, config.Spread, error) {
	tables := c.InSchemas()
	if len(tables) == 0 {
		return c, config.Spread{}, nil
	}
	found, err := database.Collect(ctx, db, "list_schemas", pgx.RowToStructByName[config.Schema],
		pgx.StrictNamedArgs{"tables": tables})
	if err != nil {
		return c, config.Spread{}, fmt.Errorf("look for schemas: %w", err)
	}
	in, left := c.In(found)
	return in, left, nil
}
