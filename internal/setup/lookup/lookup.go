// Package lookup finds the pipelines that a user names, among the stored and the configured ones.
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

// Once returns a context with a cache: Named loads the pipelines of each list of names once.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, &sync.Map{}) }

// Named returns the pipelines with these names, or all if there are none, of any slot.
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
	l := &resolve.Loader{Once: true}
	known, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if meant, err := named(known, names); err == nil { // else a table of that name may have been renamed
			l.Only = lists.Map(meant, func(p pipeline.Pipeline) int32 { return p.ID })
		}
	}
	all, err := ofSlots(ctx, l, pool)
	if err != nil {
		return nil, err
	}
	return named(all, names)
}

// named returns the pipelines of all with these names, or all if there are none.
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

// some returns an error if there is no pipeline.
func some(all []pipeline.Pipeline) error {
	if len(all) > 0 {
		return nil
	}
	return problem.New(problem.NotSetUp, errors.New("no pipeline is set up in this database"),
		"embedsidecar init sets them up")
}

// Names returns the names of pipelines.
func Names(pipelines []pipeline.Pipeline) []string {
	return lists.Map(pipelines, func(p pipeline.Pipeline) string { return p.Name })
}

// BriefRows returns the pipelines with these names as Chosen does, or one pipeline and the keys after it: a word after
// the first one that names no pipeline is a key.
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

// Brief returns all pipelines with only their numbers, names, tables and switches: a role that controls a pipeline need
// not be able to read its table.
func Brief(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	all, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	return all, some(all)
}

// Chosen returns the pipelines of Brief with these names, patterns or labels, or all if there are none.
func Chosen(ctx context.Context, pool *pgxpool.Pool, names []string) ([]pipeline.Pipeline, error) {
	all, err := brief(ctx, pool)
	if err != nil {
		return nil, err
	}
	return named(all, Matching(all, names))
}

// isChoice reports whether a word may match several pipelines.
func isChoice(word string) bool {
	return config.IsPattern(word) || strings.HasPrefix(word, pipeline.LabelPrefix)
}

// Matching replaces each pattern or label by the names of the pipelines that match, for example those of one schema. A
// name of a pipeline is not a pattern. A table with the same name as a pattern does not replace it.
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
		"FROM embedsidecar.pipeline ORDER BY name") // the columns that an operator may read
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p pipeline.Pipeline, err error) {
		err = row.Scan(&p.ID, &p.Name, &p.Schema, &p.Table, &p.Enabled, &p.Labels)
		return p, err
	})
	return all, wrap.Errorf(err, "list pipelines")
}

// NextGenerations returns the names of the pipelines that are the next generation of another.
func NextGenerations(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, _ := pool.Query(ctx, "SELECT name FROM embedsidecar.pipeline WHERE beside IS NOT NULL")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, wrap.Errorf(err, "list next generations")
}

// OtherSlots is the hint about the slots that are set up.
func OtherSlots(ctx context.Context, pool *pgxpool.Pool) string {
	const hint = "name the slot of the pipelines that are set up: --slot NAME, or EMBEDSIDECAR_SLOT"
	rows, err := pool.Query(ctx, "SELECT slot_name FROM embedsidecar.lsn_checkpoint ORDER BY slot_name")
	if err != nil {
		return hint
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 { // not set up: there are no slots
		return hint
	}
	return hint + "; there are: " + strings.Join(names, ", ")
}

// All returns the pipelines of all slots.
func All(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	return AllBy(ctx, &resolve.Loader{Once: true}, pool)
}

// AllBy is All with a cache.
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

// Configured returns the pipelines of the configuration. What it leaves open comes from the stored pipelines: the name
// of the pipeline with the same table and destination, whether it is paused, and its priority.
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
	return slices.DeleteFunc(specs, Pattern)
}

// Pattern reports whether a configured pipeline has a pattern of schemas: those in the schemas may not be known yet.
func Pattern(s pipeline.Spec) bool { return s.Schema == "" }

// SameEnds reports whether two pipelines have the same table and destination.
func SameEnds(a, b pipeline.Spec) bool {
	return a.Schema == b.Schema && a.Table == b.Table && a.Destination() == b.Destination()
}

// replaces reports whether a pipeline with the name of a stored one is the stored one, although its table was renamed
// and another table took its name. No user chose that name: it is the table's.
func replaces(spec, stored pipeline.Spec) bool {
	if spec.Schema == stored.Schema && spec.Table == stored.Table {
		return false
	}
	// An embedding table without a configured schema may have moved with the source.
	return spec.Destination() == stored.Destination() || spec.IntoSchema == "" && spec.IntoTable != "" &&
		spec.IntoTable == stored.IntoTable
}

// Find returns the index of a pipeline by name, or -1.
func Find(pipelines []pipeline.Pipeline, name string) int {
	return slices.IndexFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Name == name })
}

// Meant returns the index of the pipeline that a user means, or -1: one with this name, or else the one of a table with
// this name. If several schemas have such a table, it is that of public. Among several pipelines of a table, it is the
// one with the table's name. embedsidecar.pipeline_meant does the same.
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

// afterTable reports whether a pipeline has the default name, that of its table.
func afterTable(p *pipeline.Pipeline) bool { return p.Name == p.Schema+"."+p.Table }

// Of returns the pipelines that a list of names means, such as that of a token: all if it is empty. The name of a
// removed pipeline does not become that of another with a table of that name.
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

// InSchemas returns the configuration with the pipelines that it has in the existing schemas. It queries the database
// only if a pipeline has a pattern of schemas.
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
