package app

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// followAfter is for how long no sidecar may have been seen with a newer definition before that of one that runs is
// taken for what is wanted: in a rolling replacement a newer one may be away for a moment.
const followAfter = 30 * time.Second

// trouble is why a pipeline does not work as it is configured.
type trouble struct {
	Reason string   `json:"reason"`
	Hints  []string `json:"hints"`
	Schema string   `json:"table_schema"`
	Table  string   `json:"table_name"`
	Model  string   `json:"model"`
	Plugin string   `json:"plugin"`

	left bool // it works, as it is set up
	away bool // it was taken away: nobody sets it up again unless he is told
}

// deployed is what became of the configured pipelines. It is safe for concurrent use, but for settled, failed,
// tried and passed.
type deployed struct {
	settled bool      // the start is over
	failed  error     // of the last set-up: why some pipelines wait
	tried   time.Time // when those that wait were tried last
	untaken string    // why what is declared in the database is not taken over; "": it is
	passed  string    // what was told of schemas that are passed over

	mu       sync.Mutex
	row      int64 // where the database has it; 0: nowhere yet
	specs    map[string]pipeline.Spec
	digests  map[string]string    // of specs
	tables   map[string][2]string // of specs: schema and name
	problems map[string]trouble
	kept     map[string]int32 // versions of newer definitions that were found and left, by pipeline
	seen     map[held]time.Time
	pairs    map[tablePair]bool   // that were taken over by themselves
	leaving  map[string]time.Time // pipelines that are set up and not configured, since when that is seen
	refused  error                // why a later configuration is not taken over; nil: there is none
	restart  []string             // settings that wait for the next start
	taken    bool                 // it is to be written down that the configuration was taken over now
	told     bool                 // the database was told what is configured
	mark     string               // of the declared pipelines that are in force
	takes    bool                 // requests for pipelines are carried out here
}

// held is a definition of a pipeline.
type held struct{ pipeline, digest string }

// configure begins with what is configured.
func (d *deployed) configure(specs []pipeline.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems, d.kept = map[string]trouble{}, map[string]int32{}
	now := map[string]pipeline.Spec{}
	for _, spec := range specs {
		now[spec.Name] = spec
	}
	d.become(now)
}

// become takes over what is configured now, and notes what is not any more. The caller holds mu.
func (d *deployed) become(now map[string]pipeline.Spec) {
	for name := range d.specs {
		d.leaves(name)
	}
	d.specs, d.digests, d.tables = now, map[string]string{}, map[string][2]string{}
	for name, spec := range now { // once: they are compared with those of the database every 10 s
		d.digests[name], d.tables[name] = resolve.Digest(spec), [2]string{spec.Schema, spec.Table}
	}
	maps.DeleteFunc(d.leaving, func(name string, _ time.Time) bool { _, configured := now[name]; return configured })
}

// leaves notes that a pipeline is set up and not configured. The caller holds mu.
func (d *deployed) leaves(name string) {
	if _, known := d.leaving[name]; !known {
		d.leaving[name] = time.Now()
	}
}

// fails notes why a pipeline does not work as it is configured; nil: nothing is known of that.
func (d *deployed) fails(spec pipeline.Spec, err error) {
	if err != nil {
		d.says(spec, database.Words(err), problem.Hints(err), false)
	}
}

// takenAway notes which pipelines are not set up any more, though nothing was wrong with them, and which are again.
func (d *deployed) takenAway(gone []otherwise) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string]bool{}
	for _, other := range gone {
		names[other.Name] = true
		if _, known := d.problems[other.Name]; known {
			continue
		}
		spec := d.specs[other.Name]
		d.problems[other.Name] = trouble{
			Reason: "it was taken away, or renamed, while it is configured here",
			Hints:  []string{"take it out of the configuration, or run embedsidecar reload, which sets it up again"},
			Schema: spec.Schema, Table: spec.Table, Model: spec.Model, Plugin: resolve.PluginOf(spec), away: true,
		}
		changed = true
	}
	for name, t := range d.problems {
		if t.away && !names[name] {
			delete(d.problems, name)
			changed = true
		}
	}
	return changed
}

// replaced notes which pipelines are set up with another table than the one that has the configured name now, and
// returns those that are to take it over. Where others run it is done once for each pair of tables, because two
// sidecars may be configured with one each; but not in schemas, about which there are no two words.
func (d *deployed) replaced(c *config.Config, list []otherwise, alone func() bool) (changed bool, due []pipeline.Spec) {
	for _, other := range list {
		if other.ReplacedBy == 0 {
			continue
		}
		d.mu.Lock()
		spec, known := d.specs[other.Name], d.pairs[tablePair{other.Name, other.Table, other.ReplacedBy}]
		_, told := d.problems[other.Name] // why it could not take it over
		d.pairs[tablePair{other.Name, other.Table, other.ReplacedBy}] = true
		d.mu.Unlock()
		if !known || c.InSchema(other.Name) >= 0 || alone() {
			due = append(due, spec)
		}
		if told {
			continue
		}
		d.says(spec, "its table, or one that it joins, has another name now, and the one that has the configured name is "+
			"another, whose rows count for nothing", []string{"embedsidecar apply takes over the table that has the name"}, true)
		changed = true
	}
	return changed, due
}

// otherwise is a pipeline that is set up otherwise than it is configured here.
type otherwise struct {
	Name       string
	Version    int32 // 0: it is not set up
	Digest     string
	Differs    bool   // its definition does
	Table      uint32 // its own, or a joined one, as it is set up with
	ReplacedBy uint32 // the table that has the configured name now, where it is another; otherwise 0
}

// tablePair is a pipeline, the table that it is set up with, and the one that has the name of that.
type tablePair struct {
	pipeline  string
	is, named uint32
}

// marks notes which declared pipelines are in force.
func (d *deployed) marks(mark string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mark = mark
}

// me is where the database has what is configured here; 0: nowhere yet.
func (d *deployed) me() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.row
}

// lacks reports whether a pipeline was taken away that is configured here.
func (d *deployed) lacks() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.problems {
		if t.away {
			return true
		}
	}
	return false
}

func (d *deployed) says(spec pipeline.Spec, reason string, hints []string, left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems[spec.Name] = trouble{
		Reason: reason, Hints: append([]string{}, hints...), Schema: spec.Schema, Table: spec.Table, Model: spec.Model,
		Plugin: resolve.PluginOf(spec), left: left,
	}
}

// keeps notes what a set-up has left as it is set up, and forgets what it has mended.
func (d *deployed) keeps(specs []pipeline.Spec, kept map[string]string) {
	for _, spec := range specs {
		if why, is := kept[spec.Name]; is {
			d.says(spec, why, []string{
				"while a sidecar with the newer configuration runs; when none has for " + followAfter.String() +
					", this one is followed", "embedsidecar apply sets it up as a configuration has it, at once",
			}, true)
			continue
		}
		d.mu.Lock()
		delete(d.problems, spec.Name)
		d.mu.Unlock()
	}
}

// sick returns the pipelines that do not work as they are configured.
func (d *deployed) sick() []pipeline.Spec {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lists.Map(slices.Sorted(maps.Keys(d.problems)), func(name string) pipeline.Spec { return d.specs[name] })
}

// declare writes down what is configured here, for others and for those who ask how it stands. That it cannot be
// written is no reason not to work.
func (n *Database) declare(ctx context.Context, pool *pgxpool.Pool) {
	d, c := &n.deployed, n.config()
	settings := lists.Map(c.Show(false), func(s config.Shown) map[string]string {
		return map[string]string{"setting": s.Path, "value": n.o.Redact(s.Value), "origin": s.Origin}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	refused, hints := "", []string{}
	if d.refused != nil {
		refused, hints = n.o.Redact(database.Words(d.refused)), append(hints, problem.Hints(d.refused)...)
	}
	problems := map[string]trouble{}
	for name, t := range d.problems {
		t.Reason = n.o.Redact(t.Reason)
		problems[name] = t
	}
	err := pool.QueryRow(ctx, sqlfiles.Query("declare_configuration"), pgx.StrictNamedArgs{
		"me": d.row, "slot": c.Slot.Name, "instance": c.Instance, "file": fileOf(c), "digests": d.digests,
		"problems": problems, "settings": settings, "refused": refused, "hints": hints,
		"restart": append([]string{}, d.restart...), "taken": d.taken, "takes": d.takes,
	}).Scan(&d.row)
	if d.told = err == nil; d.told {
		d.taken = false
	} else if ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "the database is not told what is configured here", "error", err)
	}
}

// changes is what has changed in the database since it was looked at last.
type changes struct {
	Told     bool // what is configured here
	Asked    bool // requests for pipelines wait
	Declared string
	Others   []string // pipelines that others with this file have, or had, and this one has not
}

// look asks what has changed. It is declare where that failed, or where the row is gone: this sidecar was away for a
// day.
func (n *Database) look(ctx context.Context, pool *pgxpool.Pool) (c changes, err error) {
	n.deployed.mu.Lock()
	told, takes := n.deployed.told, n.deployed.takes
	n.deployed.mu.Unlock()
	if c, err = n.changed(ctx, pool); err != nil {
		return c, err // it is asked again soon
	}
	if !told || !c.Told {
		n.declare(ctx, pool)
	}
	n.deployed.mu.Lock()
	for _, name := range c.Others {
		n.deployed.leaves(name)
	}
	n.deployed.mu.Unlock()
	c.Asked = c.Asked && takes
	return c, nil
}

func (n *Database) changed(ctx context.Context, pool *pgxpool.Pool) (c changes, err error) {
	list, err := database.Collect(ctx, pool, "what_changed", pgx.RowToStructByPos[changes],
		pgx.StrictNamedArgs{"me": n.deployed.me(), "slot": n.config().Slot.Name})
	if err != nil {
		return c, err
	}
	return list[0], nil
}

// own writes down which file the pipelines are of.
func (n *Database) own(ctx context.Context, pool *pgxpool.Pool) {
	c := n.config()
	if fileOf(c) == "" {
		return
	}
	n.deployed.mu.Lock()
	names := slices.Collect(maps.Keys(n.deployed.specs))
	n.deployed.mu.Unlock()
	if err := noteOrigin(ctx, pool, c, names); err != nil && ctx.Err() == nil {
		n.o.Log.DebugContext(ctx, "the file of pipelines is not written down", "error", err)
	}
}

// noteOrigin writes down that pipelines are of the file of a configuration, but for those that are declared.
func noteOrigin(ctx context.Context, pool *pgxpool.Pool, c *config.Config, names []string) error {
	_, err := pool.Exec(ctx, `UPDATE embedsidecar.pipeline SET origin = $1
		WHERE name = ANY ($2) AND slot_name = $3 AND origin <> $1`, fileOf(c), slices.DeleteFunc(names, c.IsDeclared),
		c.Slot.Name)
	return err
}

// theirs are the definitions of the other sidecars.
type theirs struct {
	running, ended map[held]bool // ended: in the last minutes
	unknown        bool          // one that runs does not say what it has
}

// others asks which definitions the other sidecars have, or had when they ended.
func (n *Database) others(ctx context.Context, pool *pgxpool.Pool) (t theirs, err error) {
	type row struct {
		Digests map[string]string
		Lives   bool
	}
	list, err := database.Collect(ctx, pool, "held_definitions", pgx.RowToStructByName[row],
		pgx.StrictNamedArgs{"slot": n.config().Slot.Name, "me": n.deployed.me()})
	t.running, t.ended = map[held]bool{}, map[held]bool{}
	for _, r := range list {
		t.unknown = t.unknown || r.Digests == nil
		into := t.ended
		if r.Lives {
			into = t.running
		}
		for name, digest := range r.Digests {
			into[held{name, digest}] = true
		}
	}
	return t, err
}

// holders returns what tells whether the definition that a pipeline has is that of another sidecar which runs, or ran
// a moment ago. At the start, and when a configuration comes, a definition that no other sidecar has is given up at
// once. Later it stays where it was never another's: someone has set it up by hand since.
func (n *Database) holders(ctx context.Context, pool *pgxpool.Pool, fresh bool) func(name, digest string) bool {
	t, err := n.others(ctx, pool)
	unknown := t.unknown || err != nil && !fresh // before the schema is there nothing is held
	d, now := &n.deployed, time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for h := range t.running {
		d.seen[h] = now
	}
	for h := range t.ended {
		if _, ever := d.seen[h]; !ever && !fresh { // it ended before it was noticed here
			d.seen[h] = now
		}
	}
	return func(name, digest string) bool {
		if n.config().IsDeclared(name) { // the table is the truth, and nobody reverts to what he has not heard of yet
			return !fresh
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		seen, ever := d.seen[held{name, digest}]
		return unknown || t.running[held{name, digest}] || ever && now.Sub(seen) < followAfter || !ever && !fresh
	}
}
