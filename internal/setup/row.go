package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// writePipeline plans the update of a pipeline's row.
func (in *initializer) writePipeline(f *resolve.Findings, stored *resolve.Stored) (a step.Action, needed bool) {
	p, d := f.Pipeline, in.o.Descriptions[f.Pipeline.Name]
	a = step.Action{Allowed: true, Words: true}
	if stored == nil {
		a.Step = step.Step{
			What: fmt.Sprintf("pipeline %q, and its backfill", p.Name), SQL: []string{"-- a row in embedsidecar.pipeline"},
			Undo: []string{"DELETE FROM embedsidecar.pipeline WHERE name = " + database.Literal(p.Name) + ";"},
		}
		a.Run = func(ctx context.Context) error { return in.insertPipeline(ctx, f, d) }
		return a, true
	}
	changed := drift(f, stored)
	if in.o.Adopting && !stored.Adopting {
		changed.changes = append(changed.changes, "adopting")
	}
	if len(changed.changes) == 0 {
		return a, false
	}
	a.Step = step.Step{
		What: fmt.Sprintf("changes of pipeline %q: %s", p.Name, strings.Join(changed.changes, ", ")),
		SQL:  []string{"-- its row in embedsidecar.pipeline"},
	}
	if changed.texts {
		a.What += "; with a scan"
	}
	a.Run = func(ctx context.Context) error { return in.updatePipeline(ctx, f, stored, changed) }
	return a, true
}

// drifted says how a pipeline's row differs from the configuration and the catalog.
type drifted struct {
	changes []string
	texts   bool // texts may differ, so every row must be checked
	keys    bool // old ledger entries no longer match a row's key
}

// drift compares a pipeline's row with the configuration and the catalog. A table that was recreated, by a migration or
// a restored dump, may have the rows of the old one: their keys are unchanged, so the ledger stays, and shows which
// texts changed.
func drift(f *resolve.Findings, s *resolve.Stored) (d drifted) {
	p := &f.Pipeline
	note := func(differs bool, what string, text bool) {
		if differs {
			d.changes, d.texts = append(d.changes, what), d.texts || text
		}
	}
	note(p.Name != s.Name, fmt.Sprintf("name (it was %q)", s.Name), false)
	note(p.OID != s.OID, "table recreated", true)
	note(s.Moved, "names of columns", false)
	d.keys = !slices.Equal(pipeline.KeyNames(p.Key), s.KeyColumns)
	note(d.keys, "key", true)
	note(p.Text != s.Text, catalog.TextWord, true)
	note(p.Filter != s.Filter, catalog.FilterWord, true)
	note(!p.Joins.Same(s.Joins), catalog.JoinsWord, true)
	note(!slices.Equal(p.Columns, s.Columns), "columns", p.Text == "")
	note(p.Chunking != s.Chunking, "chunking", true)
	note(p.Ignore != s.Ignore, catalog.IgnoreWord, true)
	note(p.WatchAll != s.WatchAll || !slices.Equal(p.Watched, s.Watched), "watched columns", true)
	note(!s.AsMade, "generated columns", true)
	note(!slices.Equal(f.Calls, s.Functions), "functions", false) // the mark covers the texts
	note(p.Priority != s.Priority || p.PriorityBy != s.PriorityBy, catalog.PriorityWord, false)
	note(p.Enabled != s.Enabled && !staysPaused(f, s), "enabled", false)
	note(p.Active != s.Active, "active", false)
	note(p.Budget != s.Budget || p.ModelBudget != s.ModelBudget, "budget", false)
	note(p.MaxAttempts != s.MaxAttempts, "max_attempts", false)
	note(!maps.Equal(p.Labels, s.Labels), "labels", false)
	note(p.Batch.String() != s.Batch.String(), "batch", false)
	note(resolve.PluginOf(p.Spec) != s.Plugin || p.Model != s.Model, "model's place", false)
	note((p.Schema != s.Schema || p.Table != s.Table) && p.OID == s.OID, "table's name", false)
	note(!f.Destination.Exists, "destination recreated", true)
	note(s.DestinationMoved, "name of the destination", false)
	note(s.Status != pipeline.Active, "status", false)
	return d
}

// staysPaused reports whether a pipeline's vectors are being adopted: they would be embedded if it were resumed.
func staysPaused(f *resolve.Findings, s *resolve.Stored) bool {
	return s.Adopting && f.Pipeline.Enabled
}

// rowOf returns the arguments of a pipeline's row.
func (in *initializer) rowOf(f *resolve.Findings, d embed.Description) pgx.StrictNamedArgs {
	p := &f.Pipeline
	args := pgx.StrictNamedArgs{
		"name": p.Name, "oid": p.OID, "schema": p.Schema, "table": p.Table, "columns": append([]string{}, p.Columns...),
		"text": database.Given(p.Text), "filter": database.Given(p.Filter), "keys": pipeline.KeyNames(p.Key),
		"watched": append([]string{}, p.Watched...), "into_column": database.Given(p.IntoColumn),
		"into_schema": database.Given(p.Destination().Schema), "into_table": database.Given(p.IntoTable), "dims": p.Dims,
		"plugin": resolve.PluginOf(p.Spec), "model": p.Model, "chunking": p.Chunking, "fingerprint": d.Fingerprint,
		"lane": p.Priority, "priority": database.Given(p.PriorityBy), "ignore": database.Given(p.Ignore),
		"enabled": p.Enabled, "enabled_before": p.Enabled, "hours": p.Active, "minutes": p.Active.Minutes(),
		"zone":   p.Active.Zone(),
		"budget": p.Budget.Row(), "model_budget": p.ModelBudget.Row(), "max_attempts": p.MaxAttempts,
		"labels": p.Labels, "batch": p.Batch.Row(), "adopting": in.o.Adopting,
	}
	args["joins"], args["joined_text"] = nil, nil
	if len(p.Joins) > 0 {
		args["joins"], args["joined_text"] = p.Joins, p.TextExpression()
	}
	if p.WatchAll {
		args["watched"] = nil
	}
	args["functions"] = append([]string{}, f.Calls...)
	return args
}

func (in *initializer) insertPipeline(ctx context.Context, f *resolve.Findings, d embed.Description) error {
	args := in.rowOf(f, d)
	args["definitions"], args["version"], args["generations"] = map[string]int32{f.Digest: 1}, 1, 0
	begun := maps.Clone(pgx.NamedArgs(args))
	begun["slot"], begun["since"] = in.o.Slot, in.o.Since
	return database.Transact(ctx, in.o.Pool, func(tx pgx.Tx) error {
		var id int32
		if err := tx.QueryRow(ctx, sqlfiles.Query("insert_pipeline"), begun).Scan(&id); err != nil {
			return fmt.Errorf("write pipeline: %w", err)
		}
		if err := writeRow(ctx, tx, id, args); err != nil {
			return err
		}
		if err := markCatalogue(ctx, tx, in.o.Slot, id); err != nil {
			return err
		}
		if in.o.Beside != nil {
			if err := joinGeneration(ctx, tx, in.o.Beside, f.Pipeline.Spec, id); err != nil {
				return err
			}
		}
		if f.Inherits {
			if err := inherit(ctx, tx, f, id); err != nil {
				return err
			}
		}
		if f.Pipeline.InSource() { // other kept ledgers of the column are obsolete
			if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.kept_ledger WHERE table_oid = $1 AND column_number = $2",
				f.Table.OID, f.Destination.IntoNumber); err != nil {
				return fmt.Errorf("delete old ledgers of the column: %w", err)
			}
		}
		return requestScan(ctx, tx, id, "backfill")
	})
}

// markCatalogue stores the catalog's state of the pipeline's table before its backfill can begin. The streamer notices
// every later change, because it differs from the mark.
func markCatalogue(ctx context.Context, tx pgx.Tx, slotName string, id int32) error {
	rows, _ := tx.Query(ctx, sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": slotName, "pipeline": id})
	now, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	_, err = tx.Exec(ctx, sqlfiles.Query("note_catalogue"), pgx.StrictNamedArgs{
		"pipeline_id": id, "lack": "", "detail": "", "catalogue": now["current"],
		"table_schema": now["table_schema"], "table_name": now["table_name"],
	})
	return wrap.Errorf(err, "mark the table")
}

func requestScan(ctx context.Context, tx pgx.Tx, id int32, reason string) error {
	// New and redefined pipelines have a ledger that shows what is missing.
	return queue.ScanRequest{Reason: reason, Pipelines: []int32{id}, NoneMissed: true}.Send(ctx, tx)
}

func (in *initializer) updatePipeline(ctx context.Context, f *resolve.Findings, s *resolve.Stored,
	changed drifted,
) error {
	args := in.rowOf(f, in.o.Descriptions[f.Pipeline.Name])
	args["generations"], args["enabled_before"] = 0, s.Enabled
	if staysPaused(f, s) {
		args["enabled"] = s.Enabled
	}
	args["definitions"], args["version"] = s.NextDefinitions(f)
	if changed.texts {
		// Older ledger entries then differ from every row, whatever their hashes are.
		args["generations"] = 1
	}
	return database.Transact(ctx, in.o.Pool, func(tx pgx.Tx) error {
		id := s.ID
		if changed.keys {
			old := pgx.StrictNamedArgs{"pipeline_id": s.ID}
			if err := tx.QueryRow(ctx, sqlfiles.Query("renew_pipeline"), old).Scan(&id); err != nil {
				return fmt.Errorf("forget old keys: %w", err)
			}
		}
		if err := writeRow(ctx, tx, id, args); err != nil || !changed.texts {
			return err
		}
		return requestScan(ctx, tx, id, "the pipeline was changed")
	})
}

// writeRow writes the configuration of a pipeline. It returns errRenamed if the table has been renamed.
func writeRow(ctx context.Context, tx pgx.Tx, id int32, args pgx.StrictNamedArgs) error {
	args["pipeline_id"] = id
	done, err := tx.Exec(ctx, sqlfiles.Query("update_pipeline"), args)
	if err == nil && done.RowsAffected() == 0 {
		return errRenamed
	}
	return wrap.Errorf(err, "write pipeline")
}
