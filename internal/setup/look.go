package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/replication/slot"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// look reads everything that planning needs, in one transaction.
func (in *initializer) look(ctx context.Context, tx pgx.Tx) error {
	installed := in.server.Schema > 0
	var stored []resolve.Stored
	var err error
	if installed {
		if stored, err = resolve.ReadStored(ctx, tx); err != nil {
			return err
		}
	}
	if installed && in.o.Adopt {
		if err := in.takeAlong(ctx, tx, stored); err != nil {
			return err
		}
	}
	if in.pub, err = publish.Find(ctx, tx, in.o.Publication); err != nil {
		return err
	}
	if in.slot, err = slot.Find(ctx, tx, in.o.Slot, installed); err != nil {
		return err
	}
	taken := map[string]bool{} // names of stored pipelines that are configured
	for _, spec := range in.o.Specs {
		taken[spec.Name] = true
	}
	var mistakes []error
	in.known = resolve.Known(ctx, tx, in.o.Specs)
	for _, spec := range in.o.Specs {
		f, s, err := in.lookInTime(ctx, tx, spec, stored, taken)
		if errors.Is(err, database.ErrTooLong) || database.LockedOut(err) { // the transaction has ended
			return err
		}
		for f != nil && err == nil {
			if s != nil {
				taken[s.Name] = true
			}
			in.found, in.stored = append(in.found, f), append(in.stored, s)
			if err := in.priceIgnore(ctx, tx, f, s); err != nil {
				return err
			}
			for _, w := range f.Warnings {
				in.report.Warnings = append(in.report.Warnings, fmt.Sprintf("pipeline %q: %s", f.Pipeline.Name, w))
			}
			f, s, err = in.alongside(ctx, tx, f, s, stored, taken)
		}
		if _, config := errors.AsType[*refusal.ConfigError](err); config || len(refusal.Culprits(err)) > 0 {
			mistakes = append(mistakes, err)
		} else if err != nil {
			return err
		}
	}
	if err := in.foreignPublication(tx); err != nil {
		mistakes = append(mistakes, err)
	}
	for _, s := range stored {
		if s.SlotName == in.o.Slot && !taken[s.Name] {
			in.others = append(in.others, *s.Current())
			if s.BesideID == 0 {
				in.report.Others = append(in.report.Others, s.Name)
			}
		}
	}
	if in.o.Adopt {
		for i := range in.others {
			if err := sameTable(ctx, tx, &in.others[i]); err != nil {
				mistakes = append(mistakes, err)
			}
		}
	}
	if in.pub == nil || len(in.moved) > 0 { // the publication served them too, or the moved pipelines had another one
		all, err := publish.Sources(ctx, tx, in.others)
		if err != nil {
			return err
		}
		in.unpublished = slices.DeleteFunc(all, func(w publish.Wanted) bool {
			if in.pub == nil {
				return false
			}
			_, there := in.pub.Entries[w.Table.OID]
			return there
		})
	}
	return errors.Join(mistakes...)
}

// priceIgnore reports what a changed ignore expression costs: rows whose last edit was ignored are embedded again. All
// other vectors match their text.
func (in *initializer) priceIgnore(ctx context.Context, tx pgx.Tx, f *resolve.Findings, s *resolve.Stored) error {
	if s == nil || s.Ignore == "" || s.Ignore == f.Pipeline.Ignore {
		return nil
	}
	var rows int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.ledger WHERE pipeline_id = $1 AND ignored",
		s.ID).Scan(&rows)
	if err != nil {
		return fmt.Errorf("count rows whose last edit was ignored: %w", err)
	}
	if rows > 0 {
		in.report.Warnings = append(in.report.Warnings, fmt.Sprintf("pipeline %q: ignore changes: rows to embed again, "+
			"because their last edit was ignored: %d. All others keep their vector", s.Name, rows))
	}
	return nil
}

// sameTable checks that the OID of a pipeline's table means the same table here. It does in a physical copy. In a
// database that was dumped and restored, tables have other OIDs, and the stored OID may be that of another table.
func sameTable(ctx context.Context, q database.Querier, s *resolve.Stored) error {
	var other string
	err := q.QueryRow(ctx, sqlfiles.Query("other_table"), pgx.StrictNamedArgs{
		"oid": s.OID, "schema": s.Schema, "table": s.Table,
	}).Scan(&other)
	if err != nil {
		return fmt.Errorf("look up the table of pipeline %q: %w", s.Name, err)
	}
	if other == "" {
		return nil
	}
	return refusal.For(s.Name, code.Copied, fmt.Sprintf(
		"its table was %s, and that table's OID belongs to %s here: the database was dumped and restored",
		database.Quote(s.Schema, s.Table), other),
		"configure this pipeline, too: its table is then found by its name",
		"or remove it first: embedsidecar uninstall "+s.Name)
}

// takeAlong finds the slots in a copied database's checkpoints that belong to the original, and assigns their pipelines
// to this database's slot.
func (in *initializer) takeAlong(ctx context.Context, tx pgx.Tx, stored []resolve.Stored) (err error) {
	if in.moved, err = database.Collect(ctx, tx, "slots_elsewhere", pgx.RowTo[string],
		pgx.StrictNamedArgs{"slot": in.o.Slot}); err != nil {
		return fmt.Errorf("look for slots of another database: %w", err)
	}
	for i := range stored {
		if slices.Contains(in.moved, stored[i].SlotName) {
			stored[i].SlotName = in.o.Slot
		}
	}
	return nil
}

// lookInTime is lookAtPipeline within StepTimeout.
func (in *initializer) lookInTime(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, all []resolve.Stored,
	taken map[string]bool,
) (f *resolve.Findings, s *resolve.Stored, err error) {
	err = database.Limited(ctx, in.o.StepTimeout, func(ctx context.Context) (err error) {
		f, s, err = in.lookAtPipeline(ctx, tx, spec, all, taken)
		return err
	})
	if errors.Is(err, database.ErrTooLong) || in.o.Starting && database.LockedOut(err) {
		err = &refusal.PipelineError{Pipelines: []string{spec.Name}, Err: err}
	}
	return f, s, err
}

// lookAtPipeline inspects one configured pipeline and compares it with its row, if it has one. taken are the names of
// stored pipelines that are configured themselves.
func (in *initializer) lookAtPipeline(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, all []resolve.Stored,
	taken map[string]bool,
) (*resolve.Findings, *resolve.Stored, error) {
	taker := resolve.Taker{
		Slot: in.o.Slot, Stored: all, Known: in.known, Configured: func(name string) bool { return taken[name] },
		Starting: in.o.Starting, DryRun: in.o.DryRun, Held: in.o.Held,
	}
	t, err := taker.Take(ctx, tx, spec, in.o.Descriptions[spec.Name])
	if in.exchanged(spec, &t, all) {
		return nil, nil, ErrExchanged
	}
	if err != nil {
		return nil, nil, about(ctx, tx, t.Spec, t.Stored, err)
	}
	changed := in.note(spec.Name, &t)
	if err := in.judge(ctx, tx, &t.Spec, t.Stored); err != nil {
		return nil, nil, refusal.About(t.Spec.Name, err)
	}
	f, err := in.inspect(ctx, tx, &t)
	if err == nil {
		err = in.standsAlone(ctx, tx, f, &t, all, taken)
	}
	switch {
	case err != nil:
	case t.Stored != nil:
		if err = in.goesOn(f, t.Stored, t.Description); err == nil && changed != "" { // not before it is sure to be
			in.report.Warnings = append(in.report.Warnings, changed)
		}
	case f.Destination.Exists && !t.Spec.Overwrite:
		f.Unproven = true
		if err = f.Permitted(); err == nil {
			err = in.findKept(ctx, tx, f, t.Description)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return f, t.Stored, nil
}

// note records how a pipeline is taken, and returns the message about a changed definition.
func (in *initializer) note(name string, t *resolve.Taken) (changed string) {
	if t.Stored == nil {
		return ""
	}
	in.o.Descriptions = maps.Clone(in.o.Descriptions)
	in.o.Descriptions[t.Spec.Name] = t.Description
	if t.Refused != "" {
		in.keeps(name, t.Refused)
	}
	if t.Change != nil {
		in.report.Changes = append(in.report.Changes, *t.Change)
	}
	if changed = in.otherwise(name, t); t.Kept {
		in.keeps(name, changed)
	}
	return changed
}

// inspect checks what a pipeline needs, as it is taken.
func (in *initializer) inspect(ctx context.Context, tx pgx.Tx, t *resolve.Taken) (*resolve.Findings, error) {
	f, err := resolve.Inspect(ctx, tx, t.Spec, catalog.Vectors{
		Dims: t.Description.Dims, Sparse: t.Description.Sparse, Either: t.Either, Promised: in.promised, Known: in.known,
		Stored: t.Stored != nil, Unasked: in.o.Sketch,
	}, nil)
	if err == nil {
		err = resolve.KnownZone(ctx, tx, t.Spec)
	}
	if err != nil {
		return nil, about(ctx, tx, t.Spec, t.Stored, err)
	}
	f.Digest, f.Warnings = resolve.Digest(t.Configured), append(f.Warnings, t.Warnings...)
	if in.server.Version < publish.Version15 && t.Spec.ColumnLists {
		return nil, refusal.For(t.Spec.Name, "", "column lists need PostgreSQL 15 or newer")
	}
	return f, nil
}

// standsAlone refuses a pipeline that shares with another what only one can have.
func (in *initializer) standsAlone(ctx context.Context, tx pgx.Tx, f *resolve.Findings, t *resolve.Taken,
	all []resolve.Stored, taken map[string]bool,
) error {
	if o := t.Sharing; o != nil && !t.Kept && (!t.Renamed || !in.renames(f, o)) {
		return in.shared(f, o, t.Renamed)
	}
	if err := in.oneColumn(ctx, tx, f, all); err != nil {
		return err
	}
	if err := in.noCircle(f, all, taken); err != nil {
		return err
	}
	if err := in.notEmbeddings(f, all); err != nil {
		return err
	}
	if problem := f.Foreign(); problem != nil {
		return problem
	}
	return nil
}

// ErrExchanged means that schemas exchanged their names while set-up inspected them.
var ErrExchanged error = &refusal.ConflictError{
	Problem: "set up pipelines in schemas", Err: errors.New("schemas have exchanged their names since"),
	Hint: []string{"run it again"},
}

// exchanged reports whether the table that now has a pipeline's name belongs to another pipeline with the same
// destination. Their schemas have then exchanged names, and the pipelines must do so too.
func (in *initializer) exchanged(spec pipeline.Spec, t *resolve.Taken, all []resolve.Stored) bool {
	return t.Table != nil && t.Table.OID != t.Stored.OID && !in.o.DryRun && in.o.InSchema != nil &&
		in.o.InSchema(spec.Name) && slices.ContainsFunc(all, func(s resolve.Stored) bool {
		return s.OID == t.Table.OID && s.Name != spec.Name && s.BesideID == 0 && s.SlotName == in.o.Slot &&
			s.Current().Destination() == spec.Destination()
	})
}

// about adds to the error of a pipeline that cannot be inspected where its table is now, and which pipeline failed.
func about(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, stored *resolve.Stored, err error) error {
	if missing, ok := errors.AsType[*refusal.MissingError](err); ok && stored != nil {
		if t, lookErr := catalog.TableByOID(ctx, tx, stored.OID); lookErr == nil {
			missing.Hint = resolve.RenamedTo(t.Quoted())
		}
	}
	if len(refusal.Culprits(err)) == 0 && database.OfStatement(err) { // such as of an event trigger
		err = &refusal.PipelineError{Pipelines: []string{spec.Name}, Err: err}
	}
	return err
}

// findKept looks for the kept ledger of a column that a removed pipeline wrote to.
func (in *initializer) findKept(ctx context.Context, tx pgx.Tx, f *resolve.Findings, d embed.Description) error {
	if !f.Pipeline.InSource() || in.server.Schema == 0 {
		return nil
	}
	err := tx.QueryRow(ctx, sqlfiles.Query("kept_ledger"), pgx.StrictNamedArgs{
		"table": f.Table.OID, "column": f.Destination.IntoNumber, "keys": pipeline.KeyNames(f.Table.Key),
		"fingerprint": d.Fingerprint,
	}).Scan(&f.Kept)
	return wrap.Errorf(err, "look for a ledger of %s", f.Pipeline.DestinationName())
}

// judge calls Options.Judge for a pipeline that is new, or whose table has changed. A missing table is reported later.
func (in *initializer) judge(ctx context.Context, tx pgx.Tx, spec *pipeline.Spec, stored *resolve.Stored) error {
	if in.o.Judge == nil {
		return nil
	}
	t, err := in.known.TableByName(ctx, tx, spec.Schema, spec.Table)
	_, missing := errors.AsType[*refusal.MissingError](err)
	if missing || err == nil && stored != nil && t.OID == stored.OID {
		return nil
	}
	if err != nil {
		return err
	}
	return in.o.Judge(ctx, tx, spec, t.OID)
}

// goesOn refuses changes that a stored pipeline cannot make.
func (in *initializer) goesOn(f *resolve.Findings, stored *resolve.Stored, description embed.Description) error {
	name := f.Pipeline.Name
	switch {
	case stored.SlotName != in.o.Slot:
		return refusal.For(name, "", fmt.Sprintf("a pipeline of this name is set up with slot %q", stored.SlotName),
			"choose another name, or the same --slot",
			"or, if this database is a copy and that slot is the original's: embedsidecar init --adopt, with this --slot")
	case stored.DestinationName() != f.Pipeline.DestinationName() && stored.OID == f.Table.OID:
		return refusal.For(name, "", fmt.Sprintf("its destination is %s and cannot become %s", stored.DestinationName(),
			f.Pipeline.DestinationName()),
			"set up a second pipeline with another name for the new destination, and remove the old one when it is no longer read")
	case stored.Fingerprint != description.Fingerprint:
		return refusal.For(name, "", fmt.Sprintf(
			"its vectors were made by another model (%s) than the configured one (%s): the two must not mix",
			brief(stored.Fingerprint), brief(description.Fingerprint)),
			"make the next generation beside it, and switch when it is complete: embedsidecar model change "+stored.Name,
			"or go back to the model the vectors were made with ("+stored.Model+")",
			"or remove this pipeline and set it up again with --overwrite, which replaces every vector")
	}
	return nil
}
