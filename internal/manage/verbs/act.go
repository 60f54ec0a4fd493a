package verbs

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Actor acts on the pipelines of a database.
type Actor struct {
	pool *pgxpool.Pool
	by   string
}

// New makes an Actor on a pool, which the caller closes. by is the name in the audit.
func New(pool *pgxpool.Pool, by string) *Actor { return &Actor{pool: pool, by: by} }

// Person is the operating system's user of this program: user@host.
func Person() string {
	name := "?"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// Request holds the arguments of a verb besides the names of pipelines. Those that the verb does not take must be zero.
type Request struct {
	Keys        []string // keys of rows; empty: all rows that the verb applies to
	Class, Code string   // of the error
	OlderThan   time.Duration
	Priority    string
	For         *time.Duration // how long to work regardless of the hours; 0 ends that
	At          time.Time      // when the rows are processed; zero: at once
	DryRun      bool
	Limit       int64 // maximum number of rows; 0: no limit
	// Continues is the audit entry of an action that left rows, in order to continue it.
	Continues int64
}

// Outcome is the result for a pipeline.
type Outcome struct {
	Pipeline string   `json:"pipeline" doc:"Empty: the switch over all pipelines"`
	Result   string   `json:"result" doc:"Stable word for programs"`
	Rows     int64    `json:"rows,omitempty" doc:"Number of changed rows; in a dry run, of rows that would be changed"`
	Left     *int64   `json:"rows_left,omitempty" doc:"Number of rows left; absent for an action that was continued and has more to do"`
	AuditID  int64    `json:"audit_id,omitempty" doc:"Its audit entry, for continues; absent for a dry run"`
	Unknown  []string `json:"unknown_keys,omitempty" doc:"Keys that the pipeline has never had"`
	Stay     []string `json:"stay_paused,omitempty" doc:"For the switch: pipelines that remain paused individually"`
}

// Do runs a verb on pipelines given by their full names. Without names it uses the switch over all pipelines, if the
// verb has one. A dry run only counts. It also returns the outcomes with an error: what was done before it.
func (a *Actor) Do(ctx context.Context, v *Verb, pipelines []string, r Request) ([]Outcome, error) {
	list := []Outcome{}
	if err := v.check(len(pipelines), &r); err != nil {
		return list, err
	}
	if v.Whole() && len(pipelines) == 0 {
		pipelines = []string{""}
	}
	left := cmp.Or(r.Limit, math.MaxInt64)
	for _, name := range pipelines {
		o, err := a.one(ctx, v, name, &r, left)
		if err != nil {
			return list, refused(err)
		}
		list = append(list, o)
		if left -= o.Rows; left <= 0 && !r.DryRun {
			break
		}
	}
	return list, nil
}

// one runs a verb on one pipeline, or on the switch if name is "".
func (a *Actor) one(ctx context.Context, v *Verb, name string, r *Request, most int64) (o Outcome, err error) {
	args := r.arguments(v)
	args["said_by"], args["pipeline"] = a.by, null(name)
	o.Pipeline = name
	if v.Scope != Rows {
		if err := a.pool.QueryRow(ctx, v.query(), args).Scan(&o.Result); err != nil || v != Resume || name != "" {
			return o, err
		}
		all, err := lookup.Brief(ctx, a.pool)
		for i := range all {
			if !all[i].Enabled {
				o.Stay = append(o.Stay, all[i].Name)
			}
		}
		return o, err
	}
	if o.Unknown, err = a.unknown(ctx, name, r.Keys); err != nil {
		return o, err
	}
	if len(r.Keys) == 0 {
		err = a.portions(ctx, v, args, most, r.Continues, &o)
	}
	for keys := range slices.Chunk(r.Keys, portion) {
		args["keys"] = keys
		if err = a.portions(ctx, v, args, most, r.Continues, &o); err != nil {
			break
		}
	}
	o.Result = v.result(o.Rows, r.DryRun)
	return o, err
}

// arguments returns the arguments of a verb's SQL function; unset ones are NULL.
func (r *Request) arguments(v *Verb) pgx.StrictNamedArgs {
	args := pgx.StrictNamedArgs{"dry_run": r.DryRun}
	for what, value := range map[string]any{
		Keys: nil, Class: null(r.Class), Code: null(r.Code), OlderThan: null(r.OlderThan), Priority: null(r.Priority),
		For: r.For, At: null(r.At),
	} {
		if v.Has(what) {
			args[what] = value
		}
	}
	return args
}

// null returns a value, or NULL if it is zero.
func null[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// ResumeWithin resumes a pipeline in the caller's transaction.
func ResumeWithin(ctx context.Context, tx pgx.Tx, name, by string) error {
	r := Request{}
	args := r.arguments(Resume)
	args["said_by"], args["pipeline"] = by, name
	_, err := tx.Exec(ctx, Resume.query(), args)
	return refused(err)
}

// portion is how many rows one transaction of an action changes. The stream waits for a transaction that locks tasks.
const portion = 2000

// longestRest limits the pause between two portions. An action uses a fifth of the time of one connection, so that even
// a million rows do not slow the server's other work.
const longestRest = 5 * time.Second

// portions calls a function that changes rows until enough are changed or none is left, each portion in its own
// transaction. So the work done before ctx ends is kept, and the audit has its row count. continues is the audit entry
// of an earlier call, or 0. It updates the outcome even if it returns an error.
func (a *Actor) portions(ctx context.Context, v *Verb, args pgx.StrictNamedArgs, most, continues int64, o *Outcome,
) error {
	args["continues"] = null(continues)
	rests := pace.Pace{Share: pace.Queue}
	for done := int64(0); ; {
		args["max_rows"] = min(portion, most-done)
		began := time.Now()
		var changed int64
		var remaining, entry *int64
		err := database.UntilUnlocked(ctx, func() error {
			return a.pool.QueryRow(ctx, v.query(), args).Scan(&changed, &remaining, &entry)
		})
		if err != nil {
			return database.NameHolders(ctx, a.pool, err)
		}
		if args["dry_run"] == true {
			o.Rows += *remaining
			return nil
		}
		o.Rows, o.AuditID, done = o.Rows+changed, *entry, done+changed
		switch {
		case remaining != nil:
			o.Left = remaining
		case o.Left != nil: // the remaining rows are not counted again
			left := max(*o.Left-changed, 0)
			o.Left = &left
		}
		if changed == 0 || remaining != nil && *remaining == 0 || done >= most {
			return nil
		}
		args["continues"] = *entry
		now := time.Now()
		rests.Spend(now.Sub(began), now)
		sleep.For(ctx, rests.Rest(now, longestRest)) // if ctx has ended, the next portion returns its error
	}
}

// unknown returns the keys that a pipeline has never had; none if the role may not look.
func (a *Actor) unknown(ctx context.Context, name string, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := a.pool.Query(ctx, sqlfiles.Query("unknown_keys"),
		pgx.StrictNamedArgs{"pipeline": name, "row_keys": keys})
	if err != nil {
		return nil, err
	}
	unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if database.Denied(err) {
		return nil, nil
	}
	return unknown, err
}

// NoteReloads adds audit entries for plugins that were reloaded, or whose reload was refused.
func (a *Actor) NoteReloads(ctx context.Context, list []control.Reloaded) error {
	for _, r := range list {
		_, err := a.pool.Exec(ctx, sqlfiles.Query("note_reload"), pgx.StrictNamedArgs{
			"plugin": r.Plugin, "model": r.Model, "version": r.Version, "result": r.Result, "said_by": a.by,
		})
		if err != nil {
			return refused(err)
		}
	}
	return nil
}

// Tasks returns tasks of pipelines, the oldest first, after the task with the number after, at most limit. redact
// removes secrets from their messages.
func (a *Actor) Tasks(ctx context.Context, words []string, f report.TaskFilter, after string, limit int,
	redact func(string) string,
) ([]report.Task, error) {
	if slices.Contains(f.States, report.Finished) && (len(f.States) > 1 || f.Class != "") {
		return nil, misuse("finished tasks cannot be combined with other states or a class")
	}
	names, keys, err := a.Meant(ctx, words)
	if err != nil {
		return nil, err
	}
	f.Keys = append(f.Keys, keys...)
	list, err := report.Tasks(ctx, a.pool, names, f, after, limit)
	for i := range list {
		list[i].Message = redact(list[i].Message)
	}
	return append([]report.Task{}, list...), err
}

// Meant resolves words to the full names of pipelines, or to all without words. After the name of one pipeline, the
// words are keys of rows.
func (a *Actor) Meant(ctx context.Context, words []string) (names, keys []string, err error) {
	found, keys, err := lookup.BriefRows(ctx, a.pool, words)
	return lookup.Names(found), keys, err
}

// Audit returns the actions before the audit entry with a number, the newest first: those on the named pipelines, or
// all.
func (a *Actor) Audit(ctx context.Context, names []string, before int64, limit int) ([]report.Action, error) {
	all, err := lookup.Brief(ctx, a.pool)
	if err != nil {
		return nil, err
	}
	list, err := report.Audit(ctx, a.pool, lookup.Matching(all, names), before, limit)
	return append([]report.Action{}, list...), refused(err)
}

// refused adds a hint about the permitted roles to a permission error.
func refused(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		return problem.New(problem.Permission, err, "use the role that owns the schema embedsidecar, the one that ran "+
			"embedsidecar init, or a member of embedsidecar_operator")
	}
	return err
}
