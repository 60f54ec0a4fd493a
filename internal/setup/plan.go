package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// makePlan lists what is missing, in the order in which it must be made. The error joins all obstacles; the plan then
// lists what would be made without them.
func (in *initializer) makePlan() (plan []step.Action, err error) {
	if in.system.SystemID == "" { // the replication connection was refused
		in.system = pglogrepl.IdentifySystemResult{SystemID: in.slot.ServerID, Timeline: in.slot.Timeline}
	}
	plan = in.schema()
	for _, f := range in.found {
		plan = append(plan, forOne(f, in.destinationSteps(f)...)...)
	}
	want := in.wanted()
	published, err := publish.Plan(in.o.Publication, in.pub, want, in.server.MayCreate, in.grantCreate())
	for i := range published {
		published[i].Pipelines = in.readersOf(&published[i])
	}
	plan = append(plan, published...)
	if in.slot.Recorded && in.slot.Publication != in.o.Publication {
		err = errors.Join(err, refusal.Coded(code.Publication, fmt.Sprintf("slot %q was set up with publication %q, not %q",
			in.o.Slot, in.slot.Publication, in.o.Publication), "use that publication, or another slot"))
	}
	reason, taken := in.slot.Renewal(in.system, in.o.Adopt)
	err = errors.Join(err, taken)
	if len(in.found) == 0 && !in.slot.Recorded && len(in.moved) == 0 || len(want) == 0 && in.pub == nil {
		return plan, err // nothing to stream yet: a slot would only keep WAL
	}
	if reason != "" {
		err = errors.Join(err, in.full, in.mayRenew())
		plan = append(plan, in.makeSlot(reason))
	}
	if len(in.moved) > 0 {
		plan = append(plan, in.move())
	}
	for i, f := range in.found {
		if a, needed := in.writePipeline(f, in.stored[i]); needed {
			plan = append(plan, forOne(f, a)...)
		}
	}
	return append(plan, in.notJoined()...), err
}

// notJoined plans to remove formerly joined tables that no pipeline uses any more from the publication, if the role
// may.
func (in *initializer) notJoined() (steps []step.Action) {
	var used []uint32
	for i := range in.others {
		used = append(used, in.others[i].Tables()...)
	}
	for _, w := range in.wanted() {
		used = append(used, w.Table.OID)
	}
	for _, s := range in.stored {
		if s == nil || in.pub == nil || !in.pub.OwnedByUs {
			continue
		}
		for _, oid := range s.Tables()[1:] {
			entry, there := in.pub.Entries[oid]
			if !there || slices.Contains(used, oid) {
				continue
			}
			used = append(used, oid)
			alter := "ALTER PUBLICATION " + database.Quote(in.o.Publication)
			steps = append(steps, step.Action{
				Step: step.Step{
					What: "table " + entry.Name + " out of publication " + database.Quote(in.o.Publication),
					SQL:  []string{alter + " DROP TABLE ONLY " + entry.Name},
					Undo: []string{alter + " ADD TABLE ONLY " + entry.Name + ";"},
				},
				Allowed: true, Tables: []uint32{oid},
			})
		}
	}
	return steps
}

// forOne marks steps as those of one pipeline.
func forOne(f *resolve.Findings, steps ...step.Action) []step.Action {
	for i := range steps {
		steps[i].Pipelines = []string{f.Pipeline.Name}
	}
	return steps
}

// readersOf returns the pipelines that fail if the role may not run a publication step. It returns none where the
// failure concerns all pipelines: the role may not make the publication at all.
func (in *initializer) readersOf(a *step.Action) (names []string) {
	for _, f := range in.found {
		if slices.ContainsFunc(f.Joined, func(j resolve.Joined) bool { return slices.Contains(a.Tables, j.Table.OID) }) {
			names = append(names, f.Pipeline.Name)
			continue
		}
		if slices.Contains(a.Tables, f.Table.OID) && (len(a.Tables) == 1 || !a.Allowed && !f.Table.OwnedByUs) {
			names = append(names, f.Pipeline.Name)
		}
	}
	if in.pub == nil && (a.Allowed || !in.server.MayCreate) || in.pub != nil && !in.pub.OwnedByUs {
		return nil
	}
	return names
}

// destinationSteps lists what a destination lacks.
func (in *initializer) destinationSteps(f *resolve.Findings) (steps []step.Action) {
	if !f.Destination.Exists {
		return []step.Action{in.makeDestination(f)}
	}
	if a, needed := retype(f); needed {
		steps = append(steps, a)
	}
	if a, needed := makeChunkColumns(f); needed {
		steps = append(steps, a)
	}
	if a, needed := in.markAnew(f); needed {
		steps = append(steps, a)
	}
	return steps
}

func (in *initializer) makeDestination(f *resolve.Findings) step.Action {
	spec, comment := f.Pipeline.Spec, in.comment(f)
	if spec.InSource() {
		alter := "ALTER TABLE " + f.Table.Quoted()
		column := alter + " ADD COLUMN " + database.Quote(spec.IntoColumn) + " " +
			f.Destination.Stored.Column(f.Vector.Extension(), f.Pipeline.Dims)
		return step.Action{
			Step: step.Step{
				What: "column " + spec.DestinationName(),
				SQL:  []string{column, comment},
				Undo: []string{alter + " DROP COLUMN " + database.Quote(spec.IntoColumn) + ";"},
			},
			Allowed: f.Table.OwnedByUs, Why: f.Table.Whose(), Tables: []uint32{f.Table.OID},
		}
	}
	form := f.Destination.Form
	form.Chunked = form.Chunked || in.o.Chunked
	return step.Action{
		Step: step.Step{What: "embedding table " + spec.Into(), SQL: append(catalog.EmbeddingTable(spec, f.Table, f.Vector,
			form, f.Pipeline.Dims), comment), Undo: []string{"DROP TABLE " + spec.Into() + ";"}},
		Check: asMade(f), Allowed: f.Destination.MayMake,
		Why:   fmt.Sprintf("role %q may not create in schema %q", in.server.Role, f.Destination.Schema),
		Grant: "GRANT CREATE ON SCHEMA " + database.Quote(f.Destination.Schema) + " TO " + database.Quote(in.server.Role),
	}
}

// wanted lists the tables to publish, each once. A table has a column list if all its pipelines ask for one.
func (in *initializer) wanted() (want []publish.Wanted) {
	add := func(w publish.Wanted) {
		if !slices.ContainsFunc(want, func(o publish.Wanted) bool { return o.Table.OID == w.Table.OID }) {
			want = append(want, w)
		}
	}
	for _, f := range in.found {
		add(publish.Wanted{Table: f.Table, Columns: in.columnList(f.Table)})
	}
	for _, f := range in.found {
		for _, j := range f.Joined {
			add(publish.Wanted{Table: j.Table, Columns: in.columnList(j.Table)})
		}
	}
	for _, w := range in.unpublished {
		add(w)
	}
	return want
}

// columnList returns the columns of a table that its pipelines need, or nil to publish all.
func (in *initializer) columnList(t *catalog.Table) []string {
	if t.Kind == "p" || t.Identity == "f" {
		return nil // a root's column list does not apply to its partitions; a full identity does not allow one
	}
	need := pipeline.KeyNames(t.Key)
	for _, f := range in.found {
		for _, j := range f.Joined {
			if j.Table.OID != t.OID {
				continue
			}
			if !f.Pipeline.ColumnLists || j.Uses == nil {
				return nil
			}
			need = append(need, j.Uses...)
		}
		if f.Table.OID != t.OID {
			continue
		}
		if !f.Pipeline.ColumnLists || f.Pipeline.WatchAll {
			return nil
		}
		need = append(need, f.Pipeline.Watched...)
		if f.Pipeline.InSource() {
			need = append(need, f.Pipeline.IntoColumn) // a user may ask for a new vector by setting it to NULL
		}
	}
	for _, s := range in.others {
		if slices.Contains(s.Tables()[1:], t.OID) {
			return nil // which of its columns matter is not known here
		}
		if s.OID != t.OID {
			continue
		}
		if s.WatchAll {
			return nil
		}
		need = append(append(need, s.Watched...), s.IntoColumn)
	}
	var list []string
	for _, c := range t.Columns {
		if slices.Contains(need, c.Name) && !c.Generated {
			list = append(list, c.Name)
		}
	}
	for _, name := range need { // a destination that this run makes
		if _, ok := t.Column(name); !ok && name != "" {
			list = lists.Add(list, name)
		}
	}
	return list
}

// mayRenew refuses to recreate a slot that lost changes, if the user wants to be asked. A slot whose creation was
// interrupted has delivered nothing yet.
func (in *initializer) mayRenew() error {
	v := in.slot.Judge(in.system)
	if !in.o.StopOnLost || in.o.Adopt || !v.Condition.Gap() || v.Condition == slot.Interrupted {
		return nil
	}
	return &refusal.LostError{Slot: in.o.Slot, Reason: v.Reason}
}

func (in *initializer) makeSlot(reason string) step.Action {
	a := step.Action{
		Step: step.Step{
			What: "slot " + database.Quote(in.o.Slot),
			SQL: []string{fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput');",
				database.Literal(in.o.Slot))},
		},
		Allowed: true,
	}
	if in.slot.Recorded { // cannot be undone: the old position is lost
		a.What += " again (" + reason + "), and a scan of every pipeline"
	} else {
		a.Undo = []string{
			fmt.Sprintf("SELECT pg_drop_replication_slot(%s);", database.Literal(in.o.Slot)),
			"DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = " + database.Literal(in.o.Slot) + ";",
		}
	}
	a.Run = func(ctx context.Context) error { return in.createSlot(ctx, reason) }
	return a
}

// move plans to move the pipelines of a copied database from the original's slots to this database's slot.
func (in *initializer) move() step.Action {
	return step.Action{
		Step: step.Step{
			What: fmt.Sprintf("slot %s that of the pipelines of %s, with a scan of each", database.Quote(in.o.Slot),
				database.QuoteAll(in.moved)),
			SQL: []string{"-- their rows in embedsidecar.pipeline and embedsidecar.lsn_checkpoint"},
		},
		Allowed: true, Words: true,
		Run: func(ctx context.Context) error {
			return database.Transact(ctx, in.o.Pool, func(tx pgx.Tx) error {
				rows, _ := tx.Query(ctx, "UPDATE embedsidecar.pipeline SET slot_name = $1 WHERE slot_name = ANY ($2) RETURNING pipeline_id", in.o.Slot, in.moved)
				ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
				if err != nil {
					return fmt.Errorf("move pipelines: %w", err)
				}
				for _, of := range []string{"declared", "request"} {
					if _, err := tx.Exec(ctx, "UPDATE embedsidecar."+of+" SET slot_name = $1 WHERE slot_name = ANY ($2)", in.o.Slot,
						in.moved); err != nil {
						return fmt.Errorf("move what is declared: %w", err)
					}
				}
				// The routes that the original's streamer stored do not apply to this slot.
				if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.route WHERE pipeline_id = ANY ($1)", ids); err != nil {
					return fmt.Errorf("delete the routes of the original: %w", err)
				}
				if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = ANY ($1)",
					in.moved); err != nil {
					return fmt.Errorf("forget the slots of the original: %w", err)
				}
				return queue.RequestScan(ctx, tx, "the database is a copy", ids)
			})
		},
	}
}

// createSlot makes the slot and its checkpoint. It first writes the checkpoint's row without a position: after a crash
// in between, the next init recognizes the slot as its own.
func (in *initializer) createSlot(ctx context.Context, reason string) error {
	if err := slot.Begin(ctx, in.o.Pool, in.o.Slot, in.o.Publication, in.system); err != nil {
		return err
	}
	if v := in.slot.Judge(in.system); in.o.Starting && v.Condition.Gap() { // the stream reports it the same way
		in.log.WarnContext(ctx, "gap found: creating a new slot and comparing all rows", "slot", in.o.Slot, "reason",
			v.Reason)
	}
	m := slot.Maker{
		DB: in.o.Pool, Conn: in.repl, Server: in.system, Failover: in.o.Failover, Timeout: in.o.SlotTimeout, Log: in.log,
	}
	_, err := m.Make(ctx, &in.slot, "a new slot was created: "+reason)
	return err
}

// retype plans to change the key types of an embedding table to those of its source.
func retype(f *resolve.Findings) (a step.Action, needed bool) {
	return step.Action{
		Step: step.Step{What: "type of the key in " + f.Pipeline.Into() + " as that of " + f.Table.Quoted() +
			" (the table is rewritten; searches wait for it)", SQL: f.Destination.Retype},
		Allowed: true, Long: true, Tables: []uint32{f.Destination.IntoOID}, // the server reports a missing privilege
	}, f.Destination.Retype != nil
}

// makeChunkColumns plans to add columns of chunks to an existing embedding table.
func makeChunkColumns(f *resolve.Findings) (a step.Action, needed bool) {
	sql := f.AddChunkColumns()
	if !f.Pipeline.Chunking.On() || len(sql) == 0 {
		return a, false
	}
	return step.Action{
		Step:    step.Step{What: "columns and index of chunks in " + f.Pipeline.Into(), SQL: sql},
		Allowed: true, Long: true, Tables: []uint32{f.Destination.IntoOID}, // the server reports a missing privilege
	}, true
}

// otherwise returns a message about a pipeline that is set up differently than configured; "": it is not. A user who
// runs init may go back to an older definition, and is told so.
func (in *initializer) otherwise(name string, t *resolve.Taken) string {
	switch d := t.Differs; {
	case d.Was == "":
		return ""
	case t.Kept:
		return fmt.Sprintf("pipeline %q %s: it is not changed: %s; %s", name, d.Newer(), d.Was, resolve.WayToNewer)
	case d.Older:
		return fmt.Sprintf("pipeline %q goes back to version %d of its definition, as version %d: %s; a sidecar that starts with the newer configuration does not change that", name, d.Configured, d.Now+1, d.Was)
	default:
		return fmt.Sprintf("pipeline %q differs from its configuration, and is changed to what is configured here, as version %d of its definition: %s; "+
			"a sidecar that starts with the old configuration does not change it back: deploy this one everywhere", name, d.Now+1, d.Was)
	}
}

// keeps records why a pipeline is left unchanged.
func (in *initializer) keeps(pipeline, why string) {
	if in.report.Kept = maps.Clone(in.report.Kept); in.report.Kept == nil {
		in.report.Kept = map[string]string{}
	}
	in.report.Kept[pipeline] = why
}
