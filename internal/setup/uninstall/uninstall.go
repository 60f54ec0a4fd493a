// Package uninstall removes what init made: one pipeline, or everything.
package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Options says what All removes.
type Options struct {
	Pool       *pgxpool.Pool // as the owner of what init made
	Embeddings bool          // also vectors: columns and tables that init made, never others
	DryRun     bool
	Log        *slog.Logger // nil: silent
}

// Removed says what All or Pipeline did, or in a dry run would do.
type Removed struct {
	SQL  []string // the statements, in their order
	Kept []string // columns and tables with vectors that stay: init made them, or they will be taken over again
}

// All removes all our objects from the database: slots, publications, the schema, and with Embeddings the vectors,
// including those that an earlier uninstall left. By default it keeps the vectors; it always keeps the extension. It
// returns *NotSetUpError when there is nothing to remove, *ConflictError when a sidecar is running.
func All(ctx context.Context, o Options) (Removed, error) {
	var plan []removal
	var done Removed
	err := database.RetryReadOnly(ctx, o.Pool, func(tx pgx.Tx) error {
		plan, done = nil, Removed{}
		if err := catalog.Untrusted(ctx, tx); err != nil {
			return err
		}
		marked, err := markedDestinations(ctx, tx)
		if err != nil {
			return err
		}
		if !o.Embeddings {
			done.Kept = names(made(marked))
		}
		version, err := catalog.SchemaVersion(ctx, tx)
		if err == nil && version == 0 && (!o.Embeddings || len(made(marked)) == 0) {
			err = &refusal.NotSetUpError{}
		}
		if err != nil {
			return err
		}
		if version > 0 {
			if plan, err = removeSlots(ctx, tx); err != nil {
				return err
			}
		}
		if o.Embeddings {
			vectors, err := removeVectors(ctx, tx, version > 0, marked)
			if err != nil {
				return err
			}
			plan = append(plan, vectors...)
		}
		if version > 0 {
			plan = append(plan, removal{sql: "DROP SCHEMA embedsidecar CASCADE"})
		}
		return nil
	})
	if err != nil {
		return done, err
	}
	steps := slices.Collect(slices.Chunk(plan, 1)) // one by one: the drop of a slot is not rolled back
	done.SQL, err = perform(ctx, o.Pool, steps, o.DryRun, o.Log)
	return done, err
}

// removeVectors plans the removal of every destination that init made: those of pipelines, then those that were left.
func removeVectors(ctx context.Context, q database.Querier, installed bool, marked []left) ([]removal, error) {
	var stored []resolve.Stored
	var err error
	if installed {
		if stored, err = resolve.ReadStored(ctx, q); err != nil {
			return nil, err
		}
	}
	var all []left
	for i := range stored {
		if l := ownDestination(marked, stored[i].Current()); l != nil {
			all = append(all, *l)
		}
	}
	for _, l := range made(marked) {
		if !slices.ContainsFunc(all, func(other left) bool { return other.name() == l.name() }) {
			all = append(all, l)
		}
	}
	// Inherited columns that are also defined locally can be dropped only after the parent's.
	heirs := map[string]int{}
	for _, l := range all {
		if heirs[l.name()], err = l.heirs(ctx, q, all); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b left) int { return heirs[b.name()] - heirs[a.name()] })
	var plan []removal
	for _, l := range all {
		steps, err := l.removals(ctx, q)
		if err != nil {
			return nil, err
		}
		plan = append(plan, steps...)
	}
	return plan, nil
}

func names(list []left) []string { return lists.Map(list, left.name) }

// PipelineOptions says which pipeline Pipeline removes.
type PipelineOptions struct {
	Pool      *pgxpool.Pool // as the owner of its tables
	Pipeline  string        // the pipeline's name
	Embedding bool          // also its vectors, if init made the column or table
	Keep      bool          // keep its ledger if its vectors stay in a column
	DryRun    bool
	Log       *slog.Logger // nil: silent
}

// Pipeline removes one pipeline: its row, and its table from the publication unless another pipeline reads it. Changes
// of its rows are ignored from then on. queue.DropLeftovers later deletes its tasks and ledger, which would block
// others in this transaction. Its vectors stay by default. It returns *ConfigError when the pipeline does not exist.
func Pipeline(ctx context.Context, o PipelineOptions) (done Removed, err error) {
	var plan []removal
	err = database.RetryReadOnly(ctx, o.Pool, func(tx pgx.Tx) (err error) {
		plan, done.Kept, err = o.plan(ctx, tx)
		return err
	})
	if err != nil {
		return done, err
	}
	// all or nothing: without its row the rest would be forgotten
	done.SQL, err = perform(ctx, o.Pool, [][]removal{plan}, o.DryRun, o.Log)
	return done, err
}

// plan returns the statements that remove a pipeline, and the destinations that stay.
func (o *PipelineOptions) plan(ctx context.Context, tx pgx.Tx) (plan []removal, stay []string, err error) {
	if err := catalog.Untrusted(ctx, tx); err != nil {
		return nil, nil, err
	}
	stored, err := resolve.ReadStored(ctx, tx)
	if err != nil {
		return nil, nil, refusal.NotSetUp(err)
	}
	var kept, declared, gone bool // ledger kept under the name; declared; table missing
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM embedsidecar.kept_ledger AS k WHERE k.name = $1),
		EXISTS (SELECT FROM embedsidecar.declared AS d WHERE d.name = $1), EXISTS (SELECT FROM embedsidecar.pipeline AS p
			WHERE p.name = $1 AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = p.table_oid))`,
		o.Pipeline).Scan(&kept, &declared, &gone); err != nil {
		return nil, nil, refusal.NotSetUp(err)
	}
	name := database.Literal(o.Pipeline)
	if kept && !o.Keep {
		plan = append(plan, removal{sql: "DELETE FROM embedsidecar.kept_ledger WHERE name = " + name})
	}
	at := slices.IndexFunc(stored, func(s resolve.Stored) bool { return s.Name == o.Pipeline })
	if at < 0 && kept && !o.Keep && !o.Embedding {
		return plan, nil, nil
	}
	if at < 0 {
		return nil, nil, unknownPipeline(ctx, tx, *o, stored)
	}
	s := stored[at].Current()
	if err := alone(s, stored); err != nil && !gone { // without its table, its other generation is removed as well
		return nil, nil, err
	}
	keep := o.Keep && s.InSource() && !gone
	if keep {
		plan = append(plan, removal{sql: "SELECT embedsidecar.keep_ledger(" + name + ")"})
	}
	// The row comes first: a running sidecar then stops before the table leaves the publication.
	plan = append(plan, removal{sql: "DELETE FROM embedsidecar.pipeline WHERE name = " + name})
	if declared { // else the next start would set it up again
		plan = append(plan, removal{sql: "DELETE FROM embedsidecar.declared WHERE name = " + name})
	}
	marked, err := markedDestinations(ctx, tx)
	if err != nil {
		return nil, nil, err
	}
	own := ownDestination(marked, s)
	if own != nil {
		if err := own.spare(ctx, tx, stored); err != nil {
			return nil, nil, err
		}
	}
	published, err := withdrawn(ctx, tx, s, stored, own != nil && o.Embedding)
	plan = append(plan, published...)
	switch {
	case own == nil && keep:
		stay = []string{s.DestinationName()}
	case own == nil:
	case o.Embedding:
		steps, failed := own.removals(ctx, tx)
		plan, err = append(plan, steps...), errors.Join(err, failed)
	default:
		stay = names([]left{*own})
	}
	return plan, stay, err
}

// withdrawn removes the tables of a pipeline from the publication if no other pipeline reads them.
func withdrawn(ctx context.Context, tx pgx.Tx, s *resolve.Stored, stored []resolve.Stored, embedding bool,
) (plan []removal, err error) {
	shared := func(table uint32) bool {
		return slices.ContainsFunc(stored, func(other resolve.Stored) bool {
			return other.ID != s.ID && slices.Contains(other.Tables(), table) && other.SlotName == s.SlotName
		})
	}
	tables := s.Tables()
	slices.Sort(tables)
	for _, table := range slices.Compact(tables) {
		published, failed := unpublish(ctx, tx, s, table, shared(table), embedding)
		plan, err = append(plan, published...), errors.Join(err, failed)
	}
	return plan, err
}

// alone returns *ConfigError when a pipeline has another generation, whose vectors would be left behind.
func alone(s *resolve.Stored, all []resolve.Stored) error {
	if s.BesideID == 0 && !slices.ContainsFunc(all, func(o resolve.Stored) bool { return o.BesideID == s.ID }) {
		return nil
	}
	name := s.Name
	for i := range all {
		if all[i].ID == s.BesideID {
			name = all[i].Name
		}
	}
	return refusal.For(s.Name, code.Taken, "there is another generation of it",
		"remove that first: embedsidecar model drop-old "+name)
}

// unknownPipeline is the error of a pipeline that does not exist. An earlier removal may have left its vectors.
func unknownPipeline(ctx context.Context, q database.Querier, o PipelineOptions, stored []resolve.Stored) error {
	known := lists.Map(stored, func(s resolve.Stored) string { return s.Name })
	e := refusal.UnknownPipeline(o.Pipeline, known)
	if !o.Embedding {
		return e
	}
	marked, err := markedDestinations(ctx, q)
	if err != nil {
		return err
	}
	var drop []string
	for _, l := range made(marked) {
		if !slices.ContainsFunc(stored,
			func(s resolve.Stored) bool { return s.DestinationName() == l.name() }) {
			if err := l.spare(ctx, q, stored); err != nil {
				return err
			}
			steps, err := l.removals(ctx, q)
			if err != nil {
				return err
			}
			for _, one := range steps {
				drop = append(drop, one.sql+";")
			}
		}
	}
	if len(drop) > 0 {
		e.Hint = append(append(e.Hint, "a removed pipeline left these vectors; the owner may run:"),
			drop...)
	}
	return e
}

// removal is a statement, and the tables it locks.
type removal struct {
	sql    string
	tables []uint32
}

// perform runs each step in a transaction of its own and returns the statements.
func perform(ctx context.Context, pool *pgxpool.Pool, plan [][]removal, dry bool, log *slog.Logger) ([]string, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	r := step.Runner{Pool: pool, LockTimeout: step.Timeout, Log: log}
	var done []string
	for _, together := range plan {
		var a step.Action
		var printed []string
		for _, one := range together {
			a.SQL, a.Tables = append(a.SQL, one.sql), append(a.Tables, one.tables...)
			printed = append(printed, one.sql+";")
		}
		a.What = strings.Join(printed, " ")
		if !dry {
			err := r.Execute(ctx, a)
			switch {
			case database.HasCode(err, pgerrcode.ObjectInUse):
				return done, &refusal.ConflictError{
					Code: code.SlotHeld, Problem: "a slot is in use", Hint: []string{"stop every sidecar first"},
					Err: err,
				}
			case database.Denied(err):
				return done, &refusal.PermissionError{What: "remove", Role: pool.Config().ConnConfig.User, SQL: printed, Err: err}
			case err != nil:
				return done, fmt.Errorf("%s: %w", a.What, err)
			}
		}
		done = append(done, printed...)
	}
	return done, nil
}

// removeSlots plans the removal of all our slots on this server, and of their publications.
func removeSlots(ctx context.Context, q database.Querier) ([]removal, error) {
	rows, err := q.Query(ctx, sqlfiles.Query("slots_to_drop"))
	if err != nil {
		return nil, fmt.Errorf("look up slots: %w", err)
	}
	var (
		slots, publications       []removal
		name, holder, publication string
		exists, active, published bool
		inUse                     error
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &exists, &active, &holder, &publication, &published}, func() error {
		if active && exists {
			inUse = &refusal.ConflictError{
				Problem: fmt.Sprintf("slot %q is in use by %s", name, holder),
				Hint:    []string{"stop every sidecar first"}, Code: code.SlotHeld,
			}
		}
		if exists {
			slots = append(slots, removal{sql: "SELECT pg_drop_replication_slot(" + database.Literal(name) + ")"})
		}
		drop := removal{sql: "DROP PUBLICATION " + database.Quote(publication)}
		if published && !slices.ContainsFunc(publications, func(r removal) bool { return r.sql == drop.sql }) {
			publications = append(publications, drop)
		}
		return nil
	})
	if err = errors.Join(err, inUse); err != nil {
		return nil, err
	}
	return append(slots, publications...), nil
}

// unpublish plans to remove a pipeline's table from its slot's publication. While another pipeline reads the table, it
// only removes the destination column from the table's column list, which would prevent dropping the column.
func unpublish(ctx context.Context, tx pgx.Tx, s *resolve.Stored, table uint32, shared, dropped bool,
) ([]removal, error) {
	var name string
	err := tx.QueryRow(ctx, sqlfiles.Query("slot_publication"), pgx.StrictNamedArgs{"slot": s.SlotName}).
		Scan(&name)
	if err != nil {
		return nil, fmt.Errorf("look up publication of pipeline %q: %w", s.Name, err)
	}
	now, err := publish.Find(ctx, tx, name)
	if err != nil || now == nil {
		return nil, err
	}
	entry, ok := now.Entries[table]
	if !ok {
		return nil, nil
	}
	t, err := catalog.TableByOID(ctx, tx, table)
	if err != nil {
		return nil, err
	}
	alter := "ALTER PUBLICATION " + database.Quote(name)
	take := removal{alter + " DROP TABLE " + publish.Wanted{Table: t}.SQL(), []uint32{t.OID}}
	if !shared {
		return []removal{take}, nil
	}
	if table != s.OID {
		return nil, nil
	}
	destination, _ := t.Column(s.IntoColumn)
	if !dropped || !slices.Contains(entry.Columns, destination.Number) {
		return nil, nil
	}
	rest := publish.Wanted{Table: t}
	for _, c := range t.Columns {
		if slices.Contains(entry.Columns, c.Number) && c.Number != destination.Number {
			rest.Columns = append(rest.Columns, c.Name)
		}
	}
	return []removal{take, {alter + " ADD TABLE " + rest.SQL(), []uint32{t.OID}}}, nil
}
