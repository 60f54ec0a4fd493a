package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// look reads all that planning needs, in one transaction.
func (in *initializer) look(ctx context.Context, tx pgx.Tx) error {
	installed := in.server.Schema > 0
	var stored []storedPipeline
	var err error
	if installed {
		if stored, err = storedPipelines(ctx, tx, ""); err != nil {
			return err
		}
	}
	if installed && in.o.Adopt {
		if err := in.takeAlong(ctx, tx, stored); err != nil {
			return err
		}
	}
	if in.pub, err = findPublication(ctx, tx, in.o.Publication, in.server.Version); err != nil {
		return err
	}
	if in.slot, err = findSlot(ctx, tx, in.o.Slot, installed); err != nil {
		return err
	}
	taken := map[string]bool{} // stored pipelines that are configured, by name
	for _, spec := range in.o.Specs {
		taken[spec.Name] = true
	}
	var mistakes []error
	for _, spec := range in.o.Specs {
		f, s, err := in.lookAtPipeline(ctx, tx, spec, stored, taken)
		var config *refusal.ConfigError
		var missing *refusal.MissingError
		switch {
		case errors.As(err, &config), errors.As(err, &missing):
			mistakes = append(mistakes, err)
			continue
		case err != nil:
			return err
		}
		if s != nil {
			taken[s.Name] = true
		}
		in.found, in.stored = append(in.found, f), append(in.stored, s)
		for _, w := range f.warnings {
			in.report.Warnings = append(in.report.Warnings, fmt.Sprintf("pipeline %q: %s", spec.Name, w))
		}
	}
	if err := in.foreignPublication(ctx, tx); err != nil {
		mistakes = append(mistakes, err)
	}
	for _, s := range stored {
		if s.SlotName == in.o.Slot && !taken[s.Name] {
			in.others = append(in.others, *s.renamed())
			in.report.Others = append(in.report.Others, s.Name)
		}
	}
	if in.o.Adopt {
		for i := range in.others {
			if err := sameTable(ctx, tx, &in.others[i]); err != nil {
				mistakes = append(mistakes, err)
			}
		}
	}
	if in.pub == nil || len(in.moved) > 0 { // it was theirs, too; or it is another than that of the slot they come from
		all, err := sources(ctx, tx, in.others)
		if err != nil {
			return err
		}
		in.unpublished = slices.DeleteFunc(all, func(w publishedAs) bool {
			if in.pub == nil {
				return false
			}
			_, there := in.pub.entries[w.table.OID]
			return there
		})
	}
	return errors.Join(mistakes...)
}

// sameTable makes sure that the oid of a pipeline's table means that table here. It does in a copy of the files; in a
// database that was dumped and restored the tables have other oids, and the one of ours may by now be somebody
// else's.
func sameTable(ctx context.Context, q database.Querier, s *storedPipeline) error {
	var other string
	err := q.QueryRow(ctx, `SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
			WHERE c.oid = $1 AND (n.nspname, c.relname) <> ($2, $3)),
		(SELECT 'nothing' FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
			WHERE (n.nspname, c.relname) = ($2, $3) AND NOT EXISTS (SELECT FROM pg_class AS o WHERE o.oid = $1)), '')`,
		s.TableOID, s.TableSchema, s.TableName).Scan(&other)
	if err != nil {
		return fmt.Errorf("look up the table of pipeline %q: %w", s.Name, err)
	}
	if other == "" {
		return nil
	}
	return &refusal.ConfigError{
		Pipeline: s.Name, Problem: fmt.Sprintf(
			"its table was %s, and the number by which that was known is that of %s here: the database was dumped and restored",
			database.Quote(s.TableSchema, s.TableName), other),
		Hint: []string{
			"configure this pipeline, too: its table is then found by its name",
			"or take it away first: embedsidecar uninstall " + s.Name,
		},
	}
}

// takeAlong finds the slots that the checkpoints of a copied database name and that are the original's, and has their
// pipelines be of the slot of this one.
func (in *initializer) takeAlong(ctx context.Context, tx pgx.Tx, stored []storedPipeline) error {
	rows, err := tx.Query(ctx, `SELECT k.slot_name::text FROM embedsidecar.lsn_checkpoint AS k
		JOIN pg_replication_slots AS s ON s.slot_name = k.slot_name
		WHERE s.database IS DISTINCT FROM current_database() AND k.slot_name <> $1 ORDER BY 1`, in.o.Slot)
	if err != nil {
		return fmt.Errorf("look for slots of another database: %w", err)
	}
	if in.moved, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return fmt.Errorf("look for slots of another database: %w", err)
	}
	for i := range stored {
		if slices.Contains(in.moved, stored[i].SlotName) {
			stored[i].SlotName = in.o.Slot
		}
	}
	return nil
}

// lookAtPipeline inspects one configured pipeline and compares it with its row, if there is one. taken are the names
// of stored pipelines that are configured themselves.
func (in *initializer) lookAtPipeline(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, all []storedPipeline,
	taken map[string]bool,
) (*findings, *storedPipeline, error) {
	description := in.o.Descriptions[spec.Name]
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: spec.Name, Problem: problem, Hint: hint}
	}
	var stored *storedPipeline
	for i := range all {
		if all[i].Name == spec.Name {
			stored = &all[i]
		}
	}
	// One that nobody configures any more, and that leads to the same place, is this one under its old name.
	other := sharing(spec, all)
	renamed := stored == nil && other != nil && !taken[other.Name] && other.SlotName == in.o.Slot
	if renamed {
		stored = other
	}
	var followed []string
	configured, kept, changed := spec, false, ""
	if stored != nil {
		t, err := tableByName(ctx, tx, spec.Schema, spec.Table)
		if err == nil && t.OID == stored.TableOID {
			spec, followed = stored.follow(spec, t)
			stored = stored.renamed()
		}
		if kept, changed = in.keep(configured, spec, stored); kept {
			configured, spec = stored.written, stored.asSetUp(spec)
			in.o.Descriptions = maps.Clone(in.o.Descriptions)
			in.o.Descriptions[spec.Name] = description
		}
	}
	f, err := inspect(ctx, tx, spec, Vectors{Dims: description.Dims, Sparse: description.Sparse}, nil)
	var missing *refusal.MissingError
	if errors.As(err, &missing) && stored != nil {
		if t, lookErr := tableByOID(ctx, tx, stored.TableOID); lookErr == nil {
			missing.Hint = renamedTo(t.quoted())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	f.digest, f.warnings = digest(configured), append(f.warnings, followed...)
	if in.server.Version < version15 && spec.ColumnLists {
		return nil, nil, fail("column lists need PostgreSQL 15 or newer")
	}
	if other != nil && !kept && (!renamed || !in.renames(f, other)) {
		return nil, nil, in.shared(f, other)
	}
	if err := in.oneColumn(ctx, tx, f, all); err != nil {
		return nil, nil, err
	}
	if err := in.noCircle(f, all, taken); err != nil {
		return nil, nil, err
	}
	if problem := f.foreign(); problem != nil {
		return nil, nil, problem
	}
	if stored != nil {
		switch {
		case stored.SlotName != in.o.Slot:
			return nil, nil, fail(fmt.Sprintf("a pipeline of this name is set up with slot %q", stored.SlotName),
				"choose another name, or the same --slot",
				"or, if this database is a copy and that slot is the original's: embedsidecar init --adopt, with this --slot")
		case destinationName(stored.spec()) != destinationName(f.pipeline.Spec) && stored.TableOID == f.table.OID:
			return nil, nil, fail(fmt.Sprintf("its destination is %s and cannot become %s", destinationName(stored.spec()),
				destinationName(f.pipeline.Spec)),
				"set up a second pipeline with another name for the new destination, and remove the old one when it is no longer read")
		case stored.Fingerprint != description.Fingerprint:
			return nil, nil, fail(fmt.Sprintf(
				"its vectors were made by another model (%s) than the configured one (%s): the two must not mix",
				brief(stored.Fingerprint), brief(description.Fingerprint)),
				"go back to the model the vectors were made with ("+stored.Model+")",
				"or set up a second pipeline with another name and destination, and remove this one when it is no longer read",
				"or remove this pipeline and set it up again with --overwrite, which makes every vector anew")
		}
		if changed != "" { // not before it is sure to be
			in.report.Warnings = append(in.report.Warnings, changed)
		}
		return f, stored, nil
	}
	if f.destination.Exists && !spec.Overwrite {
		if err := permitted(ctx, tx, f); err != nil {
			return nil, nil, err
		}
		f.unproven = true
	}
	return f, nil, nil
}

// renamedTo is the way out for a configuration that names a table as it was called.
func renamedTo(now string) []string {
	return []string{"the table is now called " + now + ": name it so in the configuration"}
}

// follow gives columns that a configuration names as they were called before the name that they have now.
func (s *storedPipeline) follow(spec pipeline.Spec, t *table) (now pipeline.Spec, warnings []string) {
	name := func(old string) string {
		if _, there := t.column(old); there || s.nameNow(old) == old {
			return old
		}
		warnings = append(warnings, fmt.Sprintf("column %q of %s is now called %q: name it so in the configuration", old,
			t.quoted(), s.nameNow(old)))
		return s.nameNow(old)
	}
	spec.Columns = slices.Clone(spec.Columns)
	for i, c := range spec.Columns {
		spec.Columns[i] = name(c)
	}
	if spec.ToColumn() {
		spec.IntoColumn = name(spec.IntoColumn)
	}
	return spec, warnings
}

// sharing returns the stored pipeline of another name that has the same destination, or nil.
func sharing(spec pipeline.Spec, all []storedPipeline) *storedPipeline {
	for i := range all {
		if all[i].Name != spec.Name && destinationName(all[i].spec()) == destinationName(spec) {
			return &all[i]
		}
	}
	return nil
}

// oneColumn makes sure that no other pipeline, stored or configured, writes into the same column through the
// partitioned table that this one is a partition of, or through one of its partitions.
func (in *initializer) oneColumn(ctx context.Context, tx pgx.Tx, f *findings, all []storedPipeline) error {
	if !f.pipeline.ToColumn() {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT relid::oid FROM pg_partition_ancestors($1::oid::regclass) UNION SELECT relid::oid FROM pg_partition_tree($1::oid::regclass)`, f.table.OID)
	if err != nil {
		return fmt.Errorf("look for partitions of %s: %w", f.table.quoted(), err)
	}
	tree, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return fmt.Errorf("look for partitions of %s: %w", f.table.quoted(), err)
	}
	same := func(name, column string, table uint32) error {
		if name == f.pipeline.Name || column != f.pipeline.IntoColumn || table == f.table.OID ||
			!slices.Contains(tree, table) {
			return nil
		}
		return &refusal.ConfigError{
			Pipeline: f.pipeline.Name, Problem: fmt.Sprintf(
				"its destination %s is in part also that of pipeline %q: one table is a partition of the other",
				destinationName(f.pipeline.Spec), name),
			Hint: []string{"name another destination, or take that pipeline away first: embedsidecar uninstall " + name},
		}
	}
	for _, s := range all {
		if err := same(s.Name, s.DestinationColumn, s.TableOID); err != nil {
			return err
		}
	}
	for _, other := range in.found {
		if err := same(other.pipeline.Name, other.pipeline.IntoColumn, other.table.OID); err != nil {
			return err
		}
	}
	return nil
}

// noCircle makes sure that no vector of a pipeline asks, by way of the texts and filters of other pipelines of its
// table, for another vector of its own: they would be made for ever. taken are the names of stored pipelines that are
// configured themselves, and count as configured.
func (in *initializer) noCircle(f *findings, all []storedPipeline, taken map[string]bool) error {
	if !f.pipeline.ToColumn() {
		return nil
	}
	type reader struct {
		name, into string
		reads      []string
	}
	var others []reader
	for _, o := range in.found {
		if o.table.OID == f.table.OID && o.pipeline.ToColumn() {
			others = append(others, reader{o.pipeline.Name, o.pipeline.IntoColumn, slices.Concat(o.reads, o.pipeline.Watched)})
		}
	}
	for i := range all {
		if s := all[i].renamed(); s.TableOID == f.table.OID && s.DestinationColumn != "" && !taken[s.Name] {
			others = append(others, reader{s.Name, s.DestinationColumn, s.WatchedColumns})
		}
	}
	changed := []string{f.pipeline.IntoColumn} // by a vector of this one, sooner or later
	for i := 0; i < len(changed); i++ {
		for _, o := range others {
			if !slices.Contains(o.reads, changed[i]) || slices.Contains(changed, o.into) {
				continue
			}
			if slices.Contains(f.reads, o.into) || slices.Contains(f.pipeline.Watched, o.into) {
				return &refusal.ConfigError{
					Pipeline: f.pipeline.Name, Problem: fmt.Sprintf(
						"its text or filter reads %q, the destination of pipeline %q, whose own depends on %q in turn: they would make vectors for ever", o.into, o.name, f.pipeline.IntoColumn),
					Hint: []string{"take one of these columns out of text and filter, or give one of the pipelines an embedding table"},
				}
			}
			changed = append(changed, o.into)
		}
	}
	return nil
}

// renames reports whether a pipeline is the stored one under another name. When a sidecar starts, nothing of it may
// differ that vectors depend on: another configuration for the same database would otherwise take a pipeline over
// that is still at work. Somebody who asks for it may change all but the model at once.
func (in *initializer) renames(f *findings, s *storedPipeline) bool {
	old, fingerprint := off(s), in.o.Descriptions[f.pipeline.Name].Fingerprint
	if !in.o.Starting {
		return f.table.OID == s.TableOID && fingerprint == s.Fingerprint
	}
	return slices.Equal(keyNames(f.table.Key), s.KeyColumns) && onlyRenamed(&f.pipeline, fingerprint, &old)
}

// onlyRenamed compares all but the name of two pipelines, and their keys, which are those of one table.
func onlyRenamed(p *pipeline.Pipeline, fingerprint string, old *pipeline.Pipeline) bool {
	return p.OID == old.OID && destinationName(p.Spec) == destinationName(old.Spec) && fingerprint == old.Fingerprint &&
		p.Text == old.Text && p.Filter == old.Filter && slices.Equal(p.Columns, old.Columns) && p.Chunking == old.Chunking &&
		p.WatchAll == old.WatchAll && slices.Equal(p.Watched, old.Watched)
}

// shared is the error of a destination that another pipeline writes to.
func (in *initializer) shared(f *findings, other *storedPipeline) error {
	e := &refusal.ConfigError{
		Pipeline: f.pipeline.Name, Problem: fmt.Sprintf("its destination %s is also that of pipeline %q",
			destinationName(f.pipeline.Spec), other.Name),
		Hint: []string{"name another destination, or take that pipeline away first: embedsidecar uninstall " + other.Name},
	}
	switch {
	case other.SlotName != in.o.Slot || other.TableOID != f.table.OID:
	case in.o.Starting && other.Fingerprint == in.o.Descriptions[f.pipeline.Name].Fingerprint:
		e.Hint = append(e.Hint, "if it is that pipeline under a new name: embedsidecar init gives it the name, and takes over what else was changed")
	case other.Fingerprint != in.o.Descriptions[f.pipeline.Name].Fingerprint:
		e.Hint = append(e.Hint, "its vectors were made by another model: to give it this name, leave the model as it is")
	}
	if other.SlotName != in.o.Slot {
		e.Problem += fmt.Sprintf(" (of slot %q)", other.SlotName)
	}
	return e
}

// brief shortens a fingerprint for people.
func brief(fingerprint string) string {
	const enough = 24
	if len(fingerprint) <= enough {
		return fingerprint
	}
	return fingerprint[:enough] + "..."
}
