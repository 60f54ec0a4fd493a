package app

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// followAfter is how long no sidecar may have a newer definition before the definition of a running sidecar applies
// again. In a rolling replacement the newer sidecar may be away for a moment.
const followAfter = 30 * time.Second

// trouble is why a pipeline does not work as configured.
type trouble struct {
	Reason string   `json:"reason"`
	Hints  []string `json:"hints"`
	Schema string   `json:"table_schema"`
	Table  string   `json:"table_name"`
	Model  string   `json:"model"`
	Plugin string   `json:"plugin"`

	left bool // it works, as it is set up
	away bool // it was removed; only a reload sets it up again
}

// deployed is the state of the configured pipelines. It is safe for concurrent use, except for the fields before mu.
type deployed struct {
	settled bool      // the start is complete
	failed  error     // from the last set-up: why some pipelines wait
	tried   time.Time // last retry of the waiting pipelines
	untaken string    // why the declared pipelines are not in force; "": they are
	passed  string    // last message about skipped schemas

	mu       sync.Mutex
	row      int64 // ID of its row in embedsidecar.configured; 0: none yet
	specs    map[string]pipeline.Spec
	digests  map[string]string    // of specs
	tables   map[string][2]string // of specs: schema and name
	problems map[string]trouble
	kept     map[string]int32 // versions of newer definitions that were left in place, by pipeline
	seen     map[held]time.Time
	pairs    map[tablePair]bool   // that were handled once
	leaving  map[string]time.Time // pipelines that are set up but not configured, and since when
	refused  error                // why a newer configuration was refused; nil: none was
	restart  []string             // settings that take effect at the next start
	taken    bool                 // the next declare records that a configuration was applied
	told     bool                 // the last declare succeeded
	mark     string               // of the declared pipelines in force
	takes    bool                 // this process carries out requests for pipelines
}

// held identifies a definition of a pipeline.
type held struct{ pipeline, digest string }

// configure starts over with the configured pipelines.
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

// become replaces the configured pipelines and notes those that are no longer configured. The caller holds mu.
func (d *deployed) become(now map[string]pipeline.Spec) {
	for name := range d.specs {
		d.leaves(name)
	}
	d.specs, d.digests, d.tables = now, map[string]string{}, map[string][2]string{}
	for name, spec := range now { // computed once: settle compares them every 10 s
		d.digests[name], d.tables[name] = resolve.Digest(spec), [2]string{spec.Schema, spec.Table}
	}
	maps.DeleteFunc(d.leaving, func(name string, _ time.Time) bool { _, configured := now[name]; return configured })
}

// leaves notes that a pipeline is set up but not configured. The caller holds mu.
func (d *deployed) leaves(name string) {
	if _, known := d.leaving[name]; !known {
		d.leaving[name] = time.Now()
	}
}

// fails notes why a pipeline does not work as configured. It ignores a nil error.
func (d *deployed) fails(spec pipeline.Spec, err error) {
	if err != nil {
		d.says(spec, database.Words(err), problem.Hints(err), false)
	}
}

// takenAway notes which pipelines were removed although they had no problem, and which are set up again.
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
			Reason: "it was removed or renamed while it is configured here",
			Hints:  []string{"remove it from the configuration, or set it up again: embedsidecar reload"},
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

// replaced notes which pipelines are set up with another table than the one that has the configured name now. It
// returns those that must take over the new table. While other sidecars run, it returns each pair of tables once,
// because two sidecars may be configured with one table each. This limit does not hold in schemas, where the name is
// unambiguous.
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
		d.says(spec, "its table, or a joined table, was renamed, and another table now has the configured name: "+
			"changes of its rows are ignored", []string{"embedsidecar apply switches to the table that has the name"}, true)
		changed = true
	}
	return changed, due
}

// otherwise is a pipeline whose set-up differs from its configuration here.
type otherwise struct {
	Name       string
	Version    int32 // 0: it is not set up
	Digest     string
	Differs    bool   // the definition differs
	Table      uint32 // the pipeline's own or a joined table, as set up
	ReplacedBy uint32 // the table that has the configured name now, if it is another one; else 0
}

// tablePair is a pipeline, the table it is set up with, and the table that has that name now.
type tablePair struct {
	pipeline  string
	is, named uint32
}

// marks stores the mark of the declared pipelines in force.
func (d *deployed) marks(mark string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mark = mark
}

// me returns the ID of this sidecar's row in embedsidecar.configured; 0: none yet.
func (d *deployed) me() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.row
}

// lacks reports whether a configured pipeline was removed.
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

// keeps notes the pipelines that a set-up left unchanged, and clears the problems of the others.
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

// sick returns the pipelines that do not work as configured.
func (d *deployed) sick() []pipeline.Spec {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lists.Map(slices.Sorted(maps.Keys(d.problems)), func(name string) pipeline.Spec { return d.specs[name] })
}

// declare stores what is configured here, for other sidecars and for status queries. A failure does not stop the work.
func (n *Database) declare(ctx context.Context, pool *pgxpool.Pool) {
	d := &n.deployed
	d.mu.Lock()
	defer d.mu.Unlock()
	err := n.store(ctx, pool, n.o.Redact)
	if database.HasCode(err, pgerrcode.UntranslatableCharacter) { // the database's encoding lacks a letter of a value
		err = n.store(ctx, pool, func(text string) string { return wording.ASCII(n.o.Redact(text)) })
	}
	if d.told = err == nil; d.told {
		d.taken = false
	} else if ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "could not store the configuration in the database", "error", err)
	}
}

// store is one try of declare. shown returns a text as it is stored. The caller holds deployed.mu.
func (n *Database) store(ctx context.Context, pool *pgxpool.Pool, shown func(text string) string) error {
	d, c := &n.deployed, n.config()
	settings := lists.Map(c.Show(false), func(s config.Shown) map[string]string {
		return map[string]string{"setting": s.Path, "value": shown(s.Value), "origin": s.Origin}
	})
	refused, hints := "", []string{}
	if d.refused != nil {
		refused, hints = shown(database.Words(d.refused)), lists.Map(problem.Hints(d.refused), shown)
	}
	problems := map[string]trouble{}
	for name, t := range d.problems {
		t.Reason, t.Hints = shown(t.Reason), append([]string{}, lists.Map(t.Hints, shown)...)
		problems[name] = t
	}
	return pool.QueryRow(ctx, sqlfiles.Query("declare_configuration"), pgx.StrictNamedArgs{
		"me": d.row, "slot": c.Slot.Name, "instance": c.Instance, "file": fileOf(c), "digests": d.digests,
		"problems": problems, "settings": settings, "refused": refused, "hints": hints,
		"restart": append([]string{}, d.restart...), "taken": d.taken, "takes": d.takes,
	}).Scan(&d.row)
}

// changes is what changed in the database since the last look.
type changes struct {
	Told     bool // the database has the row of this sidecar
	Asked    bool // requests for pipelines are pending
	Declared string
	Others   []string // pipelines that other sidecars with this file have or had, and this one does not have
}

// look reads what has changed. It calls declare if that failed before, or if the row is gone because this sidecar was
// away for a day.
func (n *Database) look(ctx context.Context, pool *pgxpool.Pool) (c changes, err error) {
	n.deployed.mu.Lock()
	told, takes := n.deployed.told, n.deployed.takes
	n.deployed.mu.Unlock()
	if c, err = n.changed(ctx, pool); err != nil {
		return c, err // retried soon
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

// own records the configuration file of the pipelines.
func (n *Database) own(ctx context.Context, pool *pgxpool.Pool) {
	c := n.config()
	if fileOf(c) == "" {
		return
	}
	n.deployed.mu.Lock()
	names := slices.Collect(maps.Keys(n.deployed.specs))
	n.deployed.mu.Unlock()
	if err := noteOrigin(ctx, pool, c, names); err != nil && ctx.Err() == nil {
		n.o.Log.DebugContext(ctx, "could not store the configuration file of the pipelines", "error", err)
	}
}

// noteOrigin records the configuration file of pipelines, except for declared ones.
func noteOrigin(ctx context.Context, pool *pgxpool.Pool, c *config.Config, names []string) error {
	_, err := pool.Exec(ctx, `UPDATE embedsidecar.pipeline SET origin = $1
		WHERE name = ANY ($2) AND slot_name = $3 AND origin <> $1`, fileOf(c), slices.DeleteFunc(names, c.IsDeclared),
		c.Slot.Name)
	return err
}

// theirs are the definitions of the other sidecars.
type theirs struct {
	running, ended map[held]bool // ended: within the last minutes
	unknown        bool          // a running sidecar does not publish its definitions
}

// others reads which definitions the other sidecars have, or had when they ended.
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

// holders returns a function that reports whether another sidecar has the definition that a pipeline is set up with.
// The other sidecar runs, or ended a moment ago. At the start and with a new configuration (fresh), a definition that
// no other sidecar has is replaced at once. Later, a definition that no other sidecar ever had stays: someone set it up
// by hand.
func (n *Database) holders(ctx context.Context, pool *pgxpool.Pool, fresh bool) func(name, digest string) bool {
	t, err := n.others(ctx, pool)
	unknown := t.unknown || err != nil && !fresh // without a schema nothing is held
	d, now := &n.deployed, time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for h := range t.running {
		d.seen[h] = now
	}
	for h := range t.ended {
		if _, ever := d.seen[h]; !ever && !fresh { // it ended before this sidecar saw it
			d.seen[h] = now
		}
	}
	return func(name, digest string) bool {
		if n.config().IsDeclared(name) { // the table decides: a sidecar must not revert a declaration that it has not read
			return !fresh
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		seen, ever := d.seen[held{name, digest}]
		return unknown || t.running[held{name, digest}] || ever && now.Sub(seen) < followAfter || !ever && !fresh
	}
}
