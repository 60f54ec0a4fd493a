package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/slot"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// defaultPlugin is what a spec without a plugin means.
const defaultPlugin = "onnx"

// makePlan lists what is missing, in the order in which it must be made.
func (in *initializer) makePlan() ([]action, error) {
	plan, err := in.schema()
	if err != nil {
		return nil, err
	}
	for _, f := range in.found {
		if !f.destination.Exists {
			plan = append(plan, in.makeDestination(f))
			continue
		}
		if a, needed := retype(f); needed {
			plan = append(plan, a)
		}
		if a, needed := makeChunkColumns(f); needed {
			plan = append(plan, a)
		}
		if a, needed := in.markAnew(f); needed {
			plan = append(plan, a)
		}
	}
	want := in.wanted()
	published, err := publish(in.o.Publication, in.pub, want, in.server.MayCreate, in.grantCreate())
	if err != nil {
		return nil, err
	}
	plan = append(plan, published...)
	if in.slot.Recorded && in.slot.Publication != in.o.Publication {
		return nil, &refusal.ConfigError{
			Problem: fmt.Sprintf("slot %q was set up with publication %q, not %q", in.o.Slot, in.slot.Publication,
				in.o.Publication),
			Hint: []string{"use that publication, or another slot"},
		}
	}
	reason, err := renewal(&in.slot, in.system, in.o.Adopt)
	if err != nil {
		return nil, err
	}
	if len(in.found) == 0 && !in.slot.Recorded && len(in.moved) == 0 || len(want) == 0 && in.pub == nil {
		return plan, nil // nothing to stream yet: a slot would only keep WAL
	}
	if reason != "" {
		plan = append(plan, in.makeSlot(reason))
	}
	if len(in.moved) > 0 {
		plan = append(plan, in.move())
	}
	for i, f := range in.found {
		if a, needed := in.writePipeline(f, in.stored[i]); needed {
			plan = append(plan, a)
		}
	}
	return plan, nil
}

func (in *initializer) makeDestination(f *findings) action {
	spec, comment := f.pipeline.Spec, in.comment(f)
	if spec.ToColumn() {
		alter := "ALTER TABLE " + f.table.quoted()
		column := alter + " ADD COLUMN " + database.Quote(spec.IntoColumn) + " " + f.vector.definition(f.destination.Stored,
			f.pipeline.Dims)
		return action{
			Step: Step{
				What: "column " + destinationName(spec),
				SQL:  []string{column, comment},
				Undo: []string{alter + " DROP COLUMN " + database.Quote(spec.IntoColumn) + ";"},
			},
			allowed: f.table.OwnedByUs, tables: []uint32{f.table.OID},
		}
	}
	return action{
		Step: Step{What: "embedding table " + spec.Into(), SQL: append(embeddingTable(spec, f.table, f.vector,
			f.destination.Stored, f.pipeline.Dims), comment), Undo: []string{"DROP TABLE " + spec.Into() + ";"}},
		allowed: f.destination.MayMake, grant: "GRANT CREATE ON SCHEMA " + database.Quote(f.destination.Schema) + " TO " +
			database.Quote(in.server.Role),
	}
}

// wanted lists the tables to publish, each once, with the columns that all its pipelines need if all of them ask for
// a list.
func (in *initializer) wanted() []publishedAs {
	var want []publishedAs
	for _, f := range in.found {
		if slices.ContainsFunc(want, func(w publishedAs) bool { return w.table.OID == f.table.OID }) {
			continue
		}
		want = append(want, publishedAs{table: f.table, columns: in.columnList(f.table)})
	}
	for _, p := range in.unpublished {
		if !slices.ContainsFunc(want, func(w publishedAs) bool { return w.table.OID == p.table.OID }) {
			want = append(want, p)
		}
	}
	return want
}

// columnList returns the columns of a table that its pipelines need, or nil to publish all.
func (in *initializer) columnList(t *table) []string {
	if t.Kind == "p" || t.Identity == "f" {
		return nil // a root's list does not apply to its partitions; a full identity does not allow one
	}
	need := map[string]bool{}
	for _, k := range t.Key {
		need[k.Name] = true
	}
	for _, f := range in.found {
		if f.table.OID != t.OID {
			continue
		}
		if !f.pipeline.ColumnLists || f.pipeline.WatchAll {
			return nil
		}
		for _, c := range f.pipeline.Watched {
			need[c] = true
		}
		if f.pipeline.ToColumn() {
			need[f.pipeline.IntoColumn] = true // to see that somebody asks for a new vector by taking the old one away
		}
	}
	for _, s := range in.others {
		if s.TableOID != t.OID {
			continue
		}
		if s.WatchAll {
			return nil
		}
		for _, c := range append(slices.Clone(s.WatchedColumns), s.DestinationColumn) {
			need[c] = true
		}
	}
	var list []string
	for _, c := range t.Columns {
		if need[c.Name] && !c.Generated {
			list = append(list, c.Name)
		}
	}
	for name := range need { // a destination that is made by this very run
		if _, ok := t.column(name); !ok && name != "" {
			list = append(list, name)
		}
	}
	return list
}

func (in *initializer) makeSlot(reason string) action {
	a := action{
		Step: Step{
			What: "slot " + database.Quote(in.o.Slot),
			SQL:  []string{fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput');", database.Literal(in.o.Slot))},
			Undo: []string{
				fmt.Sprintf("SELECT pg_drop_replication_slot(%s);", database.Literal(in.o.Slot)),
				"DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = " + database.Literal(in.o.Slot) + ";",
			},
		},
		allowed: true,
	}
	if in.slot.Recorded {
		a.What += " anew (" + reason + "), and a scan of every pipeline"
	}
	a.run = func(ctx context.Context) error { return in.createSlot(ctx, reason) }
	return a
}

// move plans that pipelines of a copied database go from the original's slots to the one of this database.
func (in *initializer) move() action {
	return action{
		Step: Step{
			What: fmt.Sprintf("slot %s that of the pipelines of %s, with a scan of each", database.Quote(in.o.Slot), database.QuoteAll(in.moved)),
			SQL:  []string{"-- their rows in embedsidecar.pipeline and embedsidecar.lsn_checkpoint"},
		},
		allowed: true, words: true,
		run: func(ctx context.Context) error {
			return in.transact(ctx, func(tx pgx.Tx) error {
				rows, err := tx.Query(ctx, "UPDATE embedsidecar.pipeline SET slot_name = $1 WHERE slot_name = ANY ($2) RETURNING pipeline_id", in.o.Slot, in.moved)
				if err != nil {
					return fmt.Errorf("move pipelines: %w", err)
				}
				ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
				if err != nil {
					return fmt.Errorf("move pipelines: %w", err)
				}
				// What the original's streamer acknowledged says nothing of the one of this slot.
				if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.route WHERE pipeline_id = ANY ($1)", ids); err != nil {
					return fmt.Errorf("forget what the original matches: %w", err)
				}
				if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = ANY ($1)",
					in.moved); err != nil {
					return fmt.Errorf("forget the slots of the original: %w", err)
				}
				if _, err := tx.Exec(ctx, sqlfiles.Query("request_scan"), pgx.StrictNamedArgs{
					"pipeline_ids": ids,
					"reason":       "the database is a copy",
				}); err != nil {
					return fmt.Errorf("request a scan: %w", err)
				}
				return nil
			})
		},
	}
}

// createSlot makes the slot and its checkpoint. The checkpoint's row is written first with no position: an init that
// is killed in between leaves a slot that the next one knows to be its own.
func (in *initializer) createSlot(ctx context.Context, reason string) error {
	if err := slot.Begin(ctx, in.o.Pool, in.o.Slot, in.o.Publication, in.system); err != nil {
		return err
	}
	m := slot.Maker{
		DB: in.o.Pool, Conn: in.repl, Server: in.system, Failover: in.o.Failover, Timeout: in.o.SlotTimeout, Log: in.log,
	}
	_, err := m.Make(ctx, &in.slot, "the slot was made anew: "+reason)
	return err
}

// writePipeline plans what brings a pipeline's row up to date.
func (in *initializer) writePipeline(f *findings, stored *storedPipeline) (a action, needed bool) {
	p, d := f.pipeline, in.o.Descriptions[f.pipeline.Name]
	a = action{allowed: true, words: true}
	if stored == nil {
		a.Step = Step{
			What: fmt.Sprintf("pipeline %q, and its backfill", p.Name), SQL: []string{"-- a row in embedsidecar.pipeline"},
			Undo: []string{"DELETE FROM embedsidecar.pipeline WHERE name = " + database.Literal(p.Name) + ";"},
		}
		a.run = func(ctx context.Context) error { return in.insertPipeline(ctx, f, d) }
		return a, true
	}
	changed := drift(f, stored)
	if len(changed.changes) == 0 {
		return a, false
	}
	a.Step = Step{
		What: fmt.Sprintf("changes of pipeline %q: %s", p.Name, strings.Join(changed.changes, ", ")),
		SQL:  []string{"-- its row in embedsidecar.pipeline"},
	}
	if changed.texts {
		a.What += "; with a scan"
	}
	a.run = func(ctx context.Context) error { return in.updatePipeline(ctx, f, stored, changed) }
	return a, true
}

// drifted is in what a pipeline's row differs from what is configured and there.
type drifted struct {
	changes []string
	texts   bool // texts may differ, so that every row must be looked at
	keys    bool // old entries of the ledger name no row any more
}

// drift compares a pipeline's row with what is configured and there. A table that was made anew, by a migration or a
// restored dump, may have the rows of the old one: their keys are what they were, so the ledger stays, and tells
// which texts are.
func drift(f *findings, s *storedPipeline) (d drifted) {
	p := &f.pipeline
	note := func(differs bool, what string, text bool) {
		if differs {
			d.changes, d.texts = append(d.changes, what), d.texts || text
		}
	}
	note(p.Name != s.Name, fmt.Sprintf("name (it was %q)", s.Name), false)
	note(p.OID != s.TableOID, "table made anew", true)
	note(s.moved, "names of columns", false)
	d.keys = !slices.Equal(keyNames(p.Key), s.KeyColumns)
	note(d.keys, "key", true)
	note(p.Text != s.TextExpression, textWord, true)
	note(p.Filter != s.FilterExpression, filterWord, true)
	note(!slices.Equal(p.Columns, s.SourceColumns), "columns", p.Text == "")
	note(p.Chunking != s.Chunking, "chunking", true)
	note(p.WatchAll != s.WatchAll || !slices.Equal(p.Watched, s.WatchedColumns), "watched columns", true)
	note(!s.AsMade, "generated columns", true)
	note(!slices.Equal(f.calls, s.Functions), "functions", false) // if texts differ for it, the mark of the table does
	note(p.Priority != s.Lane, "priority", false)
	note(p.Enabled != s.Enabled, "enabled", false)
	note(pluginOf(p.Spec) != s.Plugin || p.Model != s.Model, "model's place", false)
	note((p.Schema != s.TableSchema || p.Table != s.TableName) && p.OID == s.TableOID, "table's name", false)
	note(!f.destination.Exists, "destination made anew", true)
	note(s.DestinationMoved, "name of the destination", false)
	note(s.Status != string(pipeline.Active), "status", false)
	return d
}

// rowOf returns the arguments of a pipeline's row.
func (in *initializer) rowOf(f *findings, d embed.Description) pgx.StrictNamedArgs {
	p := &f.pipeline
	args := pgx.StrictNamedArgs{
		"name": p.Name, "slot": in.o.Slot, "oid": p.OID, "schema": p.Schema, "table": p.Table, "columns": append([]string{},
			p.Columns...),
		"text": nullable(p.Text), "filter": nullable(p.Filter), "keys": keyNames(p.Key), "watched": append([]string{},
			p.Watched...),
		"into_column": nullable(p.IntoColumn), "into_schema": nil, "into_table": nullable(p.IntoTable), "dims": p.Dims,
		"plugin": pluginOf(p.Spec), "model": p.Model, "chunking": p.Chunking, "fingerprint": d.Fingerprint,
		"lane": p.Priority, "enabled": p.Enabled,
	}
	if p.WatchAll {
		args["watched"] = nil
	}
	args["functions"] = append([]string{}, f.calls...)
	if !p.ToColumn() {
		args["into_schema"] = p.IntoSchema
		if p.IntoSchema == "" {
			args["into_schema"] = p.Schema
		}
	}
	return args
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (in *initializer) insertPipeline(ctx context.Context, f *findings, d embed.Description) error {
	args := in.rowOf(f, d)
	args["definitions"] = map[string]int32{f.digest: 1}
	return in.transact(ctx, func(tx pgx.Tx) error {
		var id int32
		if err := tx.QueryRow(ctx, sqlfiles.Query("insert_pipeline"), args).Scan(&id); err != nil {
			return fmt.Errorf("write pipeline: %w", err)
		}
		if err := markCatalogue(ctx, tx, in.o.Slot, id); err != nil {
			return err
		}
		return requestScan(ctx, tx, id, "backfill")
	})
}

// markCatalogue stores what the catalogue says of the pipeline's table before its backfill can begin: whatever is
// changed from now on differs from the mark, and so is noticed by the streamer.
func markCatalogue(ctx context.Context, tx pgx.Tx, slotName string, id int32) error {
	rows, err := tx.Query(ctx, sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": slotName})
	if err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	pipelines, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	for _, now := range pipelines {
		if now["pipeline_id"] != id {
			continue
		}
		_, err := tx.Exec(ctx, sqlfiles.Query("note_catalogue"), pgx.StrictNamedArgs{
			"pipeline_id": id, "lack": "", "detail": "", "catalogue": now["current"],
			"table_schema": now["table_schema"], "table_name": now["table_name"],
		})
		if err != nil {
			return fmt.Errorf("mark the table: %w", err)
		}
		return nil
	}
	return fmt.Errorf("mark the table: no pipeline %d of slot %q", id, slotName)
}

func requestScan(ctx context.Context, tx pgx.Tx, id int32, reason string) error {
	if _, err := tx.Exec(ctx, sqlfiles.Query("request_scan"), pgx.StrictNamedArgs{
		"pipeline_ids": []int32{id},
		"reason":       reason,
	}); err != nil {
		return fmt.Errorf("request a scan: %w", err)
	}
	return nil
}

func (in *initializer) updatePipeline(ctx context.Context, f *findings, s *storedPipeline, changed drifted) error {
	args := in.rowOf(f, in.o.Descriptions[f.pipeline.Name])
	delete(args, "slot")
	args["generations"] = 0
	args["definitions"], args["version"] = s.definitions(f)
	if changed.texts {
		// Entries of the ledger from before then differ from every row, whatever their hashes say.
		args["generations"] = 1
	}
	return in.transact(ctx, func(tx pgx.Tx) error {
		id := s.PipelineID
		if changed.keys {
			old := pgx.StrictNamedArgs{"pipeline_id": s.PipelineID}
			if err := tx.QueryRow(ctx, sqlfiles.Query("renew_pipeline"), old).Scan(&id); err != nil {
				return fmt.Errorf("forget old keys: %w", err)
			}
		}
		args["pipeline_id"] = id
		if _, err := tx.Exec(ctx, sqlfiles.Query("update_pipeline"), args); err != nil {
			return fmt.Errorf("write pipeline: %w", err)
		}
		if !changed.texts {
			return nil
		}
		return requestScan(ctx, tx, id, "the pipeline was changed")
	})
}
