package setup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/replication/slot"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Init makes what the pipelines need and the database lacks, in this order: extension, schema, destinations,
// publication, slot, checkpoint and pipeline rows. A slot cannot read changes from before its publication existed. Init
// is idempotent. It applies changes of the configuration, with a scan where texts may differ.
//
// All checks come before any change: mistakes (*ConfigError, joined), missing privileges (*PermissionError with the SQL
// to run) and names in use (*ConflictError) change nothing. If a later step fails, what was made stays, is in the
// report, and the next run continues from there. Only a new slot is dropped, because it would keep WAL without a
// reader.
//
// If a running sidecar makes the same things at the same time, Init looks again.
func Init(ctx context.Context, o Options) (Report, error) {
	const tries = 5
	o = o.withDefaults()
	var made []step.Step
	for i := 1; ; i++ {
		report, err := initialize(ctx, o)
		report.Steps = append(made, report.Steps...)
		if !overtaken(err) || i == tries {
			return report, err
		}
		o.Log.InfoContext(ctx, "another process made it first: looking again", "reason", err)
		if made = report.Steps; !sleep.For(ctx, sleep.Between(100*time.Millisecond, 300*time.Millisecond)) {
			return report, err
		}
	}
}

// errRenamed means that a table was renamed since it was inspected.
var errRenamed = errors.New("its table was renamed")

// overtaken reports whether a step failed because another process made or removed the same thing after planning.
func overtaken(err error) bool {
	return errors.Is(err, slot.ErrBusy) || errors.Is(err, errRenamed) || database.HasCode(err,
		pgerrcode.DuplicateObject, pgerrcode.DuplicateTable, pgerrcode.DuplicateColumn, pgerrcode.DuplicateSchema,
		pgerrcode.UniqueViolation)
}

func initialize(ctx context.Context, o Options) (Report, error) {
	in := &initializer{o: o, log: o.Log}
	if err := in.validate(); err != nil {
		return in.report, err
	}
	defer in.letOthersIn()
	defer in.tellSlow(ctx)()
	defer in.hangUp(ctx)
	if err := in.dial(ctx); err != nil {
		if o.Sketch && in.repl == nil {
			err = in.all(ctx)
		}
		return in.told(), err
	}
	err := in.byTriggers(ctx, in.all(ctx))
	return in.told(), err
}

// dial opens the connection that makes a slot. If the server has no free connection, only what needs a slot fails.
func (in *initializer) dial(ctx context.Context) error {
	repl, err := database.ConnectReplication(ctx, in.o.ReplicationDSN,
		database.Options{ApplicationName: "embedsidecar init"})
	if failed, ok := errors.AsType[*database.Error](err); ok && failed.Kind == database.Full && !in.o.Sketch {
		in.full = err
		return nil
	}
	if err != nil {
		return err
	}
	in.repl = repl
	if in.system, err = pglogrepl.IdentifySystem(ctx, repl); err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	return catalog.SameServer(ctx, in.o.Pool, repl)
}

// hangUp closes the connection of dial.
func (in *initializer) hangUp(ctx context.Context) {
	if in.repl == nil {
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = in.repl.Close(closing)
}

// told returns the report, with what the role may not make as a warning.
func (in *initializer) told() Report {
	if refused := in.report.Refused; refused != nil {
		in.report.Warnings = append(in.report.Warnings, refused.Error()+"; as an owner or superuser: "+
			strings.Join(refused.SQL, " "))
	}
	return in.report
}

// Upgrade migrates the tables of an older version to this program's version, and does nothing else, so that stored data
// can be read. It returns *PermissionError if another role must do it.
func Upgrade(ctx context.Context, o Options) (Report, error) {
	in := &initializer{o: o.withDefaults()}
	in.log = in.o.Log
	defer in.letOthersIn()
	defer in.tellSlow(ctx)()
	if err := in.lookAround(ctx); err != nil {
		return in.report, err
	}
	_, err := in.upgrade(ctx)
	return in.report, in.byTriggers(ctx, err)
}

// slotName matches the names that Postgres allows.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (in *initializer) validate() error {
	switch {
	case database.Pooled(in.o.Pool) && !in.o.Sketch:
		return &database.Error{
			Kind: database.Pooler, Err: errors.New("init needs a session of its own"),
			Hint: []string{"give --database-url the address of the server itself"},
		}
	case !slotName.MatchString(in.o.Slot):
		return refusal.Coded("", fmt.Sprintf(
			"slot name %q: lower case letters, digits and underscores are allowed, up to 63", in.o.Slot))
	case catalog.BadName(in.o.Publication) != "":
		return refusal.Coded("", "the name of the publication "+catalog.BadName(in.o.Publication))
	}
	var mistakes []error
	names, destinations := map[string]bool{}, map[string]string{}
	for _, spec := range in.o.Specs {
		if names[spec.Name] {
			mistakes = append(mistakes, refusal.For(spec.Name, "", "there are two pipelines of this name"))
			continue
		}
		names[spec.Name] = true
		if other, taken := destinations[spec.DestinationName()]; taken {
			mistakes = append(mistakes, refusal.For(spec.Name, code.Taken, fmt.Sprintf(
				"its destination %s is also that of pipeline %q", spec.DestinationName(), other)))
		}
		destinations[spec.DestinationName()] = spec.Name
		if d, ok := in.o.Descriptions[spec.Name]; !in.o.Sketch && (!ok || d.Dims <= 0 || d.Fingerprint == "") {
			mistakes = append(mistakes, refusal.For(spec.Name, "", "its embedder has not described itself"))
		}
	}
	return errors.Join(mistakes...)
}

// ErrInitRunning is inside the *ConflictError of an Init that met another one: a retry may succeed.
var ErrInitRunning = errors.New("another init is running in this database")

// alone excludes other inits until the end, once there is a table to lock.
func (in *initializer) alone(ctx context.Context) (err error) {
	if in.o.DryRun || in.release != nil {
		return nil
	}
	if in.release, err = database.Hold(ctx, in.o.Pool, "embedsidecar.init_lock"); err == nil && in.release == nil {
		return errRunning
	}
	return err
}

// letOthersIn releases the lock of alone.
func (in *initializer) letOthersIn() {
	if in.release != nil {
		in.release()
	}
}

var errRunning = &refusal.ConflictError{
	Problem: "begin init", Err: ErrInitRunning, Hint: []string{"wait for it to end"}, Code: code.InitRunning,
}

// lookAround checks that the schema is trusted, and reads what the rest depends on.
func (in *initializer) lookAround(ctx context.Context) error {
	if err := database.ReadOnly(ctx, in.o.Pool, func(tx pgx.Tx) error { return catalog.Untrusted(ctx, tx) }); err != nil {
		return err
	}
	return in.lookAtServer(ctx)
}

func (in *initializer) all(ctx context.Context) error {
	if err := in.lookAround(ctx); err != nil {
		return err
	}
	if in.server.Vector == "" && pipeline.NeedPgvector(in.o.Specs) {
		extension, schema := in.extension()
		if err := in.perform(ctx, []step.Action{extension}); err != nil {
			return err
		}
		if in.promised = schema; !in.o.DryRun {
			in.promised = ""
			in.o.Pool.Reset() // new connections know the type
		}
	}
	if done, err := in.upgrade(ctx); err != nil || !done {
		return err
	}
	before, looking := in.report, ctx
	if in.o.Starting && !in.o.DryRun { // a locked table holds up its own pipelines alone
		looking = database.Briefly(ctx)
	}
	if err := database.RetryReadOnly(looking, in.o.Pool, func(tx pgx.Tx) error {
		in.found, in.stored, in.others, in.unpublished, in.moved, in.report = nil, nil, nil, nil, nil, before
		return in.look(ctx, tx)
	}); err != nil {
		return err
	}
	if err := in.proveEmpty(looking); err != nil && !in.o.Sketch {
		return err
	}
	plan, err := in.makePlan()
	if err != nil && !in.o.DryRun {
		return err
	}
	if failed := in.perform(ctx, plan); failed != nil || in.o.DryRun {
		return errors.Join(failed, err) // a dry run reports all obstacles, and what would be made
	}
	in.report.Pipelines, err = in.confirmed(ctx)
	return err
}

// perform runs the plan. If the role lacks a privilege for any step, it reports that before it changes anything.
func (in *initializer) perform(ctx context.Context, plan []step.Action) error {
	refused, common := in.report.Refused, false
	for _, a := range plan {
		if a.Allowed {
			continue
		}
		if refused == nil {
			refused = &refusal.PermissionError{What: "make " + a.What, Role: in.server.Role}
		}
		common = common || len(a.Pipelines) == 0
		refused.Pipelines = append(refused.Pipelines, a.Pipelines...)
		statements := a.SQL
		if a.Grant != "" {
			statements = []string{a.Grant}
		}
		for _, sql := range statements {
			if sql = strings.TrimSuffix(sql, ";") + ";"; !slices.Contains(refused.SQL, sql) {
				refused.SQL = append(refused.SQL, sql)
			}
		}
		refused.Each = append(refused.Each, refusal.Denied{What: a.What, Why: a.Why, SQL: statements})
	}
	if common {
		refused.Pipelines = nil
	}
	if refused != nil && !in.o.DryRun {
		return refused
	}
	in.report.Refused = refused
	for _, a := range plan {
		if !in.o.DryRun {
			if err := in.do(ctx, a); err != nil {
				return err
			}
			in.log.DebugContext(ctx, "made", "what", a.What)
		}
		in.report.Steps = append(in.report.Steps, a.Step)
	}
	return nil
}

func (in *initializer) do(ctx context.Context, a step.Action) error {
	var err error
	if a.Run != nil {
		err = a.Run(ctx)
	} else {
		err = in.runner().Execute(ctx, a)
	}
	if database.Denied(err) {
		e := &refusal.PermissionError{
			What: "make " + a.What, Role: in.server.Role, Err: err, Pipelines: a.Pipelines,
		}
		if inner, ok := errors.AsType[*refusal.PermissionError](err); ok { // it names the missing privilege
			e.Role, e.SQL, e.Err = inner.Role, inner.SQL, inner.Err
		} else if !a.Words {
			e.SQL = a.SQL
		}
		return e
	}
	if err != nil {
		err = fmt.Errorf("make %s: %w", a.What, err)
	}
	if len(a.Pipelines) > 0 && !overtaken(err) && (database.OfStatement(err) || in.o.Starting && database.LockedOut(err)) {
		return &refusal.PipelineError{Pipelines: a.Pipelines, Err: err}
	}
	return err
}

// tellSlow logs what a set-up waits for, first after three seconds and then every minute, until stop is called.
func (in *initializer) tellSlow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for pause := 3 * time.Second; sleep.For(ctx, pause); pause = time.Minute {
			var why string
			if err := in.o.Pool.QueryRow(ctx, sqlfiles.Query("slow_setup")).Scan(&why); err == nil && why != "" {
				in.log.WarnContext(ctx, "set-up is waiting", "waits_for", why)
			}
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// confirmed resolves every pipeline as it now is in the database. A sidecar that starts waits for locked tables later,
// while the other pipelines work.
func (in *initializer) confirmed(ctx context.Context) ([]pipeline.Pipeline, error) {
	load := in.o.Loader.Settled
	if in.o.Starting {
		load = in.o.Loader.Load
	}
	all, err := load(ctx, in.o.Pool, in.o.Slot)
	if err != nil {
		return nil, err
	}
	var ours []pipeline.Pipeline
	var sick []error
	for _, spec := range in.o.Specs {
		for _, p := range all {
			if p.Name != spec.Name {
				continue
			}
			if p.Status != pipeline.Active && p.Enabled && (p.Status != pipeline.Locked || !in.o.Starting) {
				sick = append(sick, refusal.For(p.Name, "", "is set up but cannot work: "+p.Detail))
			}
			ours = append(ours, p)
		}
	}
	if len(sick) > 0 {
		return nil, errors.Join(sick...)
	}
	return ours, nil
}
