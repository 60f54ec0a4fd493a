package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// Apply sets up what is configured, and removes the pipelines that this file no longer has. A dry run reports what it
// would do. The result is also valid beside an error; an empty State means that nothing was planned.
func Apply(ctx context.Context, n Options, dry bool) (told control.Configured, err error) {
	done, err := SetUp(ctx, n, SetUpOptions{DryRun: dry, Estimate: dry, Applies: true})
	if !done.Begun {
		return told, err
	}
	told = done.told(n)
	if err == nil {
		err = applyRest(ctx, n, done.Others, dry, &told)
	}
	switch {
	case err != nil && !dry && len(told.Steps) > 0:
		told.State, told.Reason, told.Hints = control.Halfway, n.Redact(database.Words(err)), problem.Hints(err)
	case err != nil:
		told.State, told.Reason, told.Hints = control.Refused, n.Redact(database.Words(err)), problem.Hints(err)
	case len(told.Steps)+len(told.NeedsRestart) == 0:
		told.State = control.Unchanged
	case dry:
		told.State = control.Planned
	}
	return told.Filled(), err
}

// told reports a set-up that was made, or would be.
func (done *SetUpDone) told(n Options) control.Configured {
	told := control.Configured{Instance: n.Config.Instance, File: fileOf(n.Config), State: control.Taken}
	told.Steps, told.Warnings = whatsOf(done.Steps), done.Warnings
	for i := range done.Estimates {
		told.Costs = append(told.Costs, costOf(&done.Estimates[i]))
	}
	for _, why := range done.Unestimated {
		told.Warnings = append(told.Warnings, n.Redact(database.Words(why)))
	}
	return told
}

// applyRest does what follows the set-up. others are the pipelines that are set up but not configured.
func applyRest(ctx context.Context, n Options, others []string, dry bool, told *control.Configured) error {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return err
	}
	defer pool.Close()
	if old := catalog.CheckVersion(ctx, pool); dry && problem.Of(old) == problem.NotSetUp {
		return nil // nothing is set up, or it can be read only after the schema upgrade
	}
	if err := takeAwayOld(ctx, n, pool, others, dry, told); err != nil {
		return err
	}
	return answerRequests(ctx, n, pool, dry, told)
}

// takeAwayOld removes the pipelines that this file no longer has, and collects the settings that running sidecars apply
// only at their next start.
func takeAwayOld(ctx context.Context, n Options, pool *pgxpool.Pool, others []string, dry bool,
	told *control.Configured,
) (err error) {
	if told.NeedsRestart, err = needRestart(ctx, n, pool); err != nil {
		return err
	}
	for _, name := range others {
		ours, err := ofFile(ctx, n, pool, name)
		if err != nil {
			return err
		}
		if !ours {
			told.Warnings = append(told.Warnings, Unconfigured(name))
			continue
		}
		if err := dismiss(ctx, n.Log, pool, name, dry, told); err != nil {
			return err
		}
	}
	return nil
}

// ofFile reports whether this configuration file set up a pipeline and no sidecar with another file configures it.
func ofFile(ctx context.Context, n Options, pool *pgxpool.Pool, name string) (ours bool, err error) {
	if n.Config.File() == "" {
		return false, nil
	}
	err = pool.QueryRow(ctx, `SELECT p.origin = $2 AND NOT EXISTS (SELECT FROM embedsidecar.configured AS c
			WHERE c.file <> $2 AND c.digests ? $1 AND embedsidecar.lives(c))
		FROM embedsidecar.pipeline AS p WHERE p.name = $1`, name, fileOf(n.Config)).Scan(&ours)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return ours, wrap.Errorf(err, "look up pipeline %q", name)
}

// needRestart returns the settings of this file that running sidecars have with other values and apply only at a start.
func needRestart(ctx context.Context, n Options, pool *pgxpool.Pool) (names []string, err error) {
	type setting struct {
		Setting, Value, Origin string
	}
	rows, _ := pool.Query(ctx, `SELECT c.settings FROM embedsidecar.configured AS c
		WHERE c.slot_name = $1 AND c.file = $2 AND embedsidecar.lives(c)`, n.Config.Slot.Name, fileOf(n.Config))
	lists, err := pgx.CollectRows(rows, pgx.RowTo[[]setting])
	if err != nil {
		return nil, fmt.Errorf("ask what sidecars are configured with: %w", err)
	}
	// A sidecar may have been given another path to the same file.
	file, itsFile, now := n.Config.File()+":", filepath.Base(n.Config.File())+":", map[string]string{}
	for _, s := range n.Config.Show(false) {
		if strings.HasPrefix(s.Origin, file) {
			now[s.Path] = n.Redact(s.Value)
		}
	}
	for _, list := range lists {
		then := map[string]string{}
		for _, s := range list {
			then[s.Setting] = s.Value
			if _, still := now[s.Setting]; !still && strings.Contains(s.Origin, itsFile) && config.AtStart(s.Setting) {
				names = append(names, s.Setting)
			}
		}
		for name, value := range now {
			if config.AtStart(name) && then[name] != value {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// answerRequests carries out the pending requests for pipelines without a running sidecar. A dry run lists them.
func answerRequests(ctx context.Context, n Options, pool *pgxpool.Pool, dry bool, told *control.Configured) error {
	if dry {
		rows, err := pool.Query(ctx, `SELECT format('request %s: %s pipeline "%s"', r.request_id, r.action, r.pipeline)
			FROM embedsidecar.request AS r WHERE r.state = 'waiting' AND r.slot_name = $1 ORDER BY r.request_id`,
			n.Config.Slot.Name)
		if err != nil {
			return fmt.Errorf("list requests for pipelines: %w", err)
		}
		waiting, err := pgx.CollectRows(rows, pgx.RowTo[string])
		told.Steps = append(told.Steps, waiting...)
		return err
	}
	for {
		a, err := takeRequest(ctx, pool, n.Config.Slot.Name)
		if a == nil || err != nil {
			return err
		}
		plan, why := a.setUp(ctx, n, pool)
		if ctx.Err() != nil || problem.Of(why) == problem.Connect {
			return why
		}
		if err := a.finish(ctx, n, pool, plan, why); err != nil {
			return err
		}
		step := fmt.Sprintf("request %d: %s pipeline %q", a.RequestID, a.Action, a.Pipeline)
		if a.DryRun {
			step += " (dry run)"
		}
		if why != nil {
			told.Warnings = append(told.Warnings, step+": refused: "+n.Redact(database.Words(why)))
			continue
		}
		told.Steps = append(told.Steps, step)
	}
}

// setUp carries out a request without a running sidecar and reports the result. A dry-run request is only planned.
func (a *asked) setUp(ctx context.Context, n Options, pool *pgxpool.Pool) (told control.Configured, err error) {
	list, err := readDeclared(ctx, pool, n.Config.Slot.Name)
	if err == nil {
		list, err = a.in(list)
	}
	if err != nil {
		return told, err
	}
	next, failed := n.Config.Base().Declaring(list)
	if why := failed[a.Pipeline]; why != nil {
		return told, why
	}
	ours, err := resolve.Load(ctx, pool, n.Config.Slot.Name)
	if err != nil {
		return told, err
	}
	if err := a.allowed(ctx, pool, next.Pipeline(a.Pipeline), ours); err != nil {
		return told, err
	}
	defer func() {
		if told.State = control.Planned; len(told.Steps) == 0 {
			told.State = control.Unchanged
		}
	}()
	if a.Action == "drop" {
		told = (&SetUpDone{}).told(n)
		err = dropNow(ctx, pool, n, a.Pipeline, a.DryRun, &told)
		return told, err
	}
	if n.Config, _, err = lookup.InSchemas(ctx, pool, next); err != nil {
		return told, err
	}
	done, err := SetUp(ctx, n, SetUpOptions{
		Applies: true, Asked: a.Pipeline, DryRun: a.DryRun, Estimate: a.DryRun,
	})
	if err == nil && a.DryRun && done.Refused != nil {
		err = done.Refused
	}
	return done.told(n), err
}
