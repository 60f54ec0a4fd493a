package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// asked is a request for a pipeline. This program declares the pipeline and sets it up like one of a file. A dry-run
// request is only planned.
type asked struct {
	RequestID  int64
	Action     string // create, change or drop
	Pipeline   string
	Definition string // the complete new definition
	RoleName   string
	RoleOID    uint32
	SaidBy     string // user on whose behalf the role asked; "": none
	Tries      int
	DryRun     bool
}

// mostTries is how often a request may be started. The limit stops a request that ends the program each time.
const mostTries = 20

// takeRequest takes the first request of a slot. It returns nil if there is none, if another program is carrying it
// out, or if this role may not.
func takeRequest(ctx context.Context, pool *pgxpool.Pool, slot string) (*asked, error) {
	list, err := database.Collect(ctx, pool, "take_request", pgx.RowToStructByPos[asked], pgx.StrictNamedArgs{"slot": slot})
	if database.Denied(err) || err == nil && len(list) == 0 {
		return nil, nil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("take a request for a pipeline: %w", err)
	}
	return &list[0], failpoint.Hit("app/request-taken")
}

// finish stores the result of a request, and the plan of a dry run.
func (a *asked) finish(ctx context.Context, n Options, pool *pgxpool.Pool, plan control.Configured, failed error,
) error {
	const most = 65536 // bytes
	var reason *string
	hints := []string{}
	switch {
	case failed != nil:
		words := n.Redact(database.Words(failed))
		reason, hints = &words, append(hints, problem.Hints(failed)...)
		n.Log.WarnContext(ctx, "request for a pipeline refused", "request", a.RequestID, "action", a.Action,
			"pipeline", a.Pipeline, "role", a.RoleName, "dry_run", a.DryRun, "error", failed, "hints", hints)
	case a.DryRun:
		n.Log.InfoContext(ctx, "request for a pipeline planned", "request", a.RequestID, "action", a.Action,
			"pipeline", a.Pipeline, "role", a.RoleName)
	default:
		n.Log.InfoContext(ctx, "request for a pipeline carried out", "request", a.RequestID, "action", a.Action,
			"pipeline", a.Pipeline, "role", a.RoleName)
	}
	if err := failpoint.Hit("app/request-done"); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, sqlfiles.Query("finish_request"), pgx.StrictNamedArgs{
		"request_id": a.RequestID, "reason": reason, "hints": hints, "plan": plan.Short(most).Filled(),
	})
	return wrap.Errorf(err, "store the result of request %d", a.RequestID)
}

// in returns the list of declared pipelines with the request applied.
func (a *asked) in(list []config.Declared) ([]config.Declared, error) {
	at := slices.IndexFunc(list, func(d config.Declared) bool { return d.Name == a.Pipeline })
	switch {
	case a.Action == "drop" && at >= 0:
		return slices.Delete(list, at, at+1), nil
	case a.Action == "drop":
		return list, nil
	case a.Action == "create" && at >= 0 && list[at].Definition != a.Definition:
		return nil, refusal.Coded(code.Taken, fmt.Sprintf("pipeline %q already exists, with another definition", a.Pipeline),
			"change_pipeline changes it")
	case a.Action == "change" && at < 0:
		return nil, refusal.UnknownPipeline(a.Pipeline, lists.Map(list, func(d config.Declared) string { return d.Name }))
	}
	as := config.Declared{Name: a.Pipeline, Definition: a.Definition, RequestID: a.RequestID}
	if at >= 0 {
		list[at] = as
		return list, nil
	}
	list = append(list, as)
	slices.SortFunc(list, func(a, b config.Declared) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// allowed returns why the role that asked may not do this. The pipeline reads tables, writes vectors and evaluates
// expressions with the rights of the role that sets it up. spec is the requested pipeline, or nil for a drop. ours are
// the pipelines that are set up.
func (a *asked) allowed(ctx context.Context, pool *pgxpool.Pool, spec *pipeline.Spec, ours []pipeline.Pipeline) error {
	if a.Tries > mostTries {
		return problem.New(problem.Failed, fmt.Errorf("it was started %d times, and the program ended each time", a.Tries-1))
	}
	var takesOver error
	if spec != nil {
		for i := range ours { // until now this name means the other pipeline
			if o := &ours[i]; o.Name != spec.Name && (o.Schema != spec.Schema || o.Table != spec.Table) &&
				(spec.Name == o.Table || spec.Name == o.Schema+"."+o.Table) {
				return refusal.Coded(code.Taken, fmt.Sprintf("the name %q means pipeline %q, of another table", spec.Name, o.Name),
					"choose another name")
			}
		}
		takesOver = overtaken(spec, ours)
	}
	schemas, tables := []string{}, []string{}
	touched := []*pipeline.Spec{}
	if spec != nil {
		touched = append(touched, spec)
	}
	if at := lookup.Find(ours, a.Pipeline); at >= 0 {
		touched = append(touched, &ours[at].Spec)
	}
	for _, s := range touched {
		schemas, tables = append(schemas, s.Schema), append(tables, s.Table)
		if d := s.Destination(); !s.InSource() {
			schemas, tables = append(schemas, d.Schema), append(tables, d.Table)
		}
	}
	return database.Transact(ctx, pool, func(tx pgx.Tx) error {
		trusted, err := a.owns(ctx, tx, schemas, tables, make([]uint32, len(tables)))
		switch {
		case err != nil || trusted || spec == nil:
			return err
		case takesOver != nil:
			return takesOver
		}
		return harmless(ctx, tx, spec)
	})
}

// owns returns an error if the role that asked lacks the rights of the owners of tables. oids are the tables' OIDs; 0
// means the table that has the name now. trusted: the role may act as this session's role and asked for itself.
func (a *asked) owns(ctx context.Context, tx pgx.Tx, schemas, tables []string, oids []uint32,
) (trusted bool, err error) {
	var others []string
	err = tx.QueryRow(ctx, sqlfiles.Query("may_declare"), pgx.StrictNamedArgs{
		"oid": a.RoleOID, "role": a.RoleName, "trusted": database.Trusted(tx.Conn()), "schemas": schemas, "tables": tables,
		"oids": oids,
	}).Scan(&trusted, &others)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, refusal.Coded(code.Untrusted, fmt.Sprintf("role %q, who requested it, no longer exists", a.RoleName))
	case err != nil:
		return false, fmt.Errorf("look up what role %q may: %w", a.RoleName, err)
	case !trusted && len(others) > 0:
		return false, refusal.Coded(code.Untrusted, fmt.Sprintf("role %q, who requested it, lacks the rights of the owner of %s",
			a.RoleName, strings.Join(others, ", ")), "ask as the owner of the table and of the destination")
	}
	return trusted && a.SaidBy == "", nil
}

// judge returns the check that set-ups run on declared pipelines. If a declared pipeline is new, or its table name now
// means another table, the role that asked must have the rights of that table's owner, which may be another role. The
// destination was checked before.
func judge(c *config.Config) func(context.Context, pgx.Tx, *pipeline.Spec, uint32) error {
	return func(ctx context.Context, tx pgx.Tx, spec *pipeline.Spec, table uint32) error {
		if !c.IsDeclared(spec.Name) {
			return nil
		}
		var a asked
		err := tx.QueryRow(ctx, sqlfiles.Query("who_asked"), pgx.StrictNamedArgs{
			"pipeline": spec.Name, "request": c.RequestOf(spec.Name),
		}).Scan(&a.RoleName, &a.RoleOID, &a.SaidBy)
		if errors.Is(err, pgx.ErrNoRows) {
			return refusal.Coded(code.Untrusted, "its name now means another table, and the requesting role is no longer known",
				"ask again: SELECT embedsidecar.change_pipeline("+database.Literal(spec.Name)+", '{}');")
		}
		if err != nil {
			return fmt.Errorf("look up who requested pipeline %q: %w", spec.Name, err)
		}
		trusted, err := a.owns(ctx, tx, []string{spec.Schema}, []string{spec.Table}, []uint32{table})
		if err != nil || trusted {
			return err
		}
		return harmless(ctx, tx, spec)
	}
}

// overtaken refuses a pipeline of a table in public if the bare table name already means a pipeline of another table.
func overtaken(spec *pipeline.Spec, ours []pipeline.Pipeline) error {
	before := lookup.Meant(ours, spec.Table)
	if before < 0 || ours[before].Schema == spec.Schema && ours[before].Table == spec.Table {
		return nil
	}
	after := lookup.Meant(append(slices.Clone(ours), pipeline.Pipeline{Spec: *spec}), spec.Table)
	if after < 0 || after == before {
		return nil
	}
	return refusal.Coded(code.Taken, fmt.Sprintf(
		"the name %q means pipeline %q, of another table, and would then mean this one", spec.Table, ours[before].Name),
		"have the owner declare it in the file")
}

// harmless checks the expressions of a pipeline. It refuses joins: each adds another table and another expression.
func harmless(ctx context.Context, tx pgx.Tx, spec *pipeline.Spec) error {
	if len(spec.Joins) > 0 {
		return refusal.Coded(code.Untrusted, "joins: the requesting role may not act as the role that reads the tables",
			"declare the pipeline as a role that may, or in the file")
	}
	expressions := []struct{ word, text string }{
		{catalog.TextWord, spec.Text},
		{catalog.FilterWord, spec.Filter},
		{catalog.ContextWord, spec.Chunking.Context},
		{catalog.IgnoreWord, spec.Ignore},
		{catalog.PriorityWord, spec.PriorityBy},
	}
	var t *catalog.Table
	var problems []error
	for _, e := range expressions {
		if e.text == "" {
			continue
		}
		var err error
		if t == nil {
			if t, err = catalog.TableByName(ctx, tx, spec.Schema, spec.Table); err != nil {
				return err
			}
		}
		if err = catalog.Harmless(ctx, tx, t, e.word, e.text); err == nil {
			continue
		}
		if _, refused := errors.AsType[*refusal.ConfigError](err); !refused {
			return err
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// dropNow removes a pipeline that is no longer declared, and reports it. Its vectors stay. A pipeline that the file has
// stays, too.
func dropNow(ctx context.Context, pool *pgxpool.Pool, n Options, name string, dry bool, told *control.Configured,
) error {
	if file := n.Config.Base(); file.Pipeline(name) != nil || file.InSchema(name) >= 0 {
		return nil
	}
	return dismiss(ctx, n.Log, pool, name, dry, told)
}

// readDeclared returns the pipelines declared for a slot.
func readDeclared(ctx context.Context, pool *pgxpool.Pool, slot string) ([]config.Declared, error) {
	list, err := database.Collect(ctx, pool, "declared_pipelines", pgx.RowToStructByPos[config.Declared],
		pgx.StrictNamedArgs{"slot": slot})
	return list, wrap.Errorf(err, "list declared pipelines")
}

// markOf returns a mark that identifies a list of declared pipelines. what_changed computes the same mark.
func markOf(list []config.Declared) string {
	return strings.Join(lists.Map(list, func(d config.Declared) string { return fmt.Sprint(d.RequestID) }), " ")
}

// withDeclared returns the configuration with the pipelines declared in the database, except those that do not fit it.
func withDeclared(ctx context.Context, n Options, pool *pgxpool.Pool) (*config.Config, error) {
	list, err := readDeclared(ctx, pool, n.Config.Slot.Name)
	if err != nil {
		return nil, err
	}
	next, failed := n.Config.Base().Declaring(list)
	for name, why := range failed {
		n.Warn(fmt.Sprintf("pipeline %q, declared by SQL or HTTP, conflicts with the configuration, which takes "+
			"precedence: %s", name, why))
	}
	next, _, err = lookup.InSchemas(ctx, pool, next)
	return next, err
}
