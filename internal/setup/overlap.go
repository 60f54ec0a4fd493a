package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// oneColumn checks that no other pipeline, stored or configured, writes to the same column through a parent or a
// partition of this table.
func (in *initializer) oneColumn(ctx context.Context, tx pgx.Tx, f *resolve.Findings, all []resolve.Stored) error {
	if !f.Pipeline.InSource() {
		return nil
	}
	tree, err := database.Collect(ctx, tx, "partition_family", pgx.RowTo[uint32],
		pgx.StrictNamedArgs{"table": f.Table.OID})
	if err != nil {
		return fmt.Errorf("look for partitions of %s: %w", f.Table.Quoted(), err)
	}
	same := func(name, column string, table uint32) error {
		if name == f.Pipeline.Name || column != f.Pipeline.IntoColumn || table == f.Table.OID ||
			!slices.Contains(tree, table) {
			return nil
		}
		return refusal.For(f.Pipeline.Name, code.Taken, fmt.Sprintf(
			"its destination %s is in part also that of pipeline %q: one table is a partition of the other",
			f.Pipeline.DestinationName(), name),
			"name another destination, or remove that pipeline first: embedsidecar uninstall "+name)
	}
	for _, s := range all {
		if err := same(s.Name, s.IntoColumn, s.OID); err != nil {
			return err
		}
	}
	for _, other := range in.found {
		if err := same(other.Pipeline.Name, other.Pipeline.IntoColumn, other.Table.OID); err != nil {
			return err
		}
	}
	return nil
}

// noCircle checks that no vector of a pipeline triggers another one of its own through the texts and filters of other
// pipelines of its table, in an endless loop. taken are the names of stored pipelines that are configured themselves,
// and count as configured.
func (in *initializer) noCircle(f *resolve.Findings, all []resolve.Stored, taken map[string]bool) error {
	if !f.Pipeline.InSource() {
		return nil
	}
	type reader struct {
		name, into string
		reads      []string
	}
	var others []reader
	for _, o := range in.found {
		if o.Table.OID == f.Table.OID && o.Pipeline.InSource() {
			others = append(others, reader{o.Pipeline.Name, o.Pipeline.IntoColumn, slices.Concat(o.Reads, o.Pipeline.Watched)})
		}
	}
	for i := range all {
		if s := all[i].Current(); s.OID == f.Table.OID && s.IntoColumn != "" && !taken[s.Name] {
			others = append(others, reader{s.Name, s.IntoColumn, s.Watched})
		}
	}
	changed := []string{f.Pipeline.IntoColumn} // by a vector of this pipeline, directly or indirectly
	for i := 0; i < len(changed); i++ {
		for _, o := range others {
			if !slices.Contains(o.reads, changed[i]) || slices.Contains(changed, o.into) {
				continue
			}
			if slices.Contains(f.Reads, o.into) || slices.Contains(f.Pipeline.Watched, o.into) {
				return refusal.For(f.Pipeline.Name, code.Expression, fmt.Sprintf(
					"its text or filter reads %q, the destination of pipeline %q, which depends on %q in turn: they would trigger each other without end", o.into, o.name, f.Pipeline.IntoColumn),
					"take one of these columns out of text and filter, or give one of the pipelines an embedding table")
			}
			changed = append(changed, o.into)
		}
	}
	return nil
}

// notEmbeddings refuses to join an embedding table of any pipeline: it would be published, and each vector would be a
// change.
func (in *initializer) notEmbeddings(f *resolve.Findings, all []resolve.Stored) error {
	into := map[string]string{}
	for i := range all {
		into[all[i].DestinationName()] = all[i].Name
	}
	for _, spec := range in.o.Specs {
		into[spec.DestinationName()] = spec.Name
	}
	for _, j := range f.Joined {
		if name, is := into[j.Table.Quoted()]; is {
			return refusal.For(f.Pipeline.Name, code.Join, fmt.Sprintf("%s is the embedding table of pipeline %q, and cannot "+
				"be joined", j.Table.Quoted(), name), "join the table that the texts are in")
		}
	}
	return nil
}

// renames reports whether a pipeline is the stored one under another name. When a sidecar starts, everything that
// vectors depend on must be equal: otherwise another configuration for the same database could take over a pipeline
// that is still in use. A user who asks for it may change everything but the model at once.
func (in *initializer) renames(f *resolve.Findings, s *resolve.Stored) bool {
	fingerprint := in.o.Descriptions[f.Pipeline.Name].Fingerprint
	if !in.o.Starting {
		return f.Table.OID == s.OID && fingerprint == s.Fingerprint
	}
	return slices.Equal(pipeline.KeyNames(f.Table.Key), s.KeyColumns) &&
		resolve.OnlyRenamed(&f.Pipeline, fingerprint, &s.Pipeline)
}

// shared is the error for a destination that another pipeline writes to.
func (in *initializer) shared(f *resolve.Findings, other *resolve.Stored, renamed bool) error {
	problem := fmt.Sprintf("its destination %s is also that of pipeline %q", f.Pipeline.DestinationName(), other.Name)
	hint := []string{"name another destination, or remove that pipeline first: embedsidecar uninstall " + other.Name}
	switch same := other.Fingerprint == in.o.Descriptions[f.Pipeline.Name].Fingerprint; {
	case other.SlotName != in.o.Slot:
		problem += fmt.Sprintf(" (of slot %q)", other.SlotName)
	case other.OID != f.Table.OID, !renamed: // or the other name is configured as well
	case !same:
		hint = append(hint, "its vectors were made by another model: to give it this name, leave the model as it is")
	case in.o.Starting:
		hint = append(hint, "if it is that pipeline under a new name: embedsidecar init renames it and applies the other changes")
	}
	return refusal.For(f.Pipeline.Name, code.Taken, problem, hint...)
}

// brief shortens a fingerprint for messages.
func brief(fingerprint string) string {
	const enough = 24
	if len(fingerprint) <= enough {
		return fingerprint
	}
	return fingerprint[:enough] + "..."
}

// proveEmpty checks that existing destinations hold no vectors of other programs. It runs last and in transactions of
// its own, because the search for a vector in a column may read the whole table.
func (in *initializer) proveEmpty(ctx context.Context) error {
	var mistakes []error
	for _, f := range in.found {
		if !f.Unproven {
			continue
		}
		holds, err := holdsVectors(ctx, in.o.Pool, &f.Pipeline, f.Destination.IntoOID)
		switch {
		case err != nil && in.o.Starting && database.LockedOut(err):
			mistakes = append(mistakes, &refusal.PipelineError{Pipelines: []string{f.Pipeline.Name}, Err: err})
		case err != nil:
			return refusal.About(f.Pipeline.Name, err)
		case holds && !in.takesUp(f):
			mistakes = append(mistakes, in.occupied(f))
		case holds:
			becomes := "every vector in it is replaced, unless this is init --adopt"
			if f.Inherits = in.o.Adopt || f.Kept != 0; f.Inherits {
				becomes = "its vectors are kept, except those whose texts have changed"
			}
			in.report.Warnings = append(in.report.Warnings,
				fmt.Sprintf("pipeline %q: the destination %s is taken over from an earlier set-up: %s",
					f.Pipeline.Name, f.Pipeline.DestinationName(), becomes))
		}
	}
	return errors.Join(mistakes...)
}

// inherit writes the ledger of a destination that an earlier set-up left. An embedding table has the text hash of each
// vector; for a column, the kept ledger has it. The entries have no generation of this pipeline, so its backfill checks
// every row, and finds the texts that are unchanged. The vectors themselves are not checked: verify --deep does that.
func inherit(ctx context.Context, tx pgx.Tx, f *resolve.Findings, id int32) error {
	p := &f.Pipeline
	const into = "INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn"
	text, whole := "(array_agg(e.text_hash))[1]", " HAVING count(*) = 1 AND min(e.chunk_no) = 0"
	if p.Chunking.On() { // the hash of the whole text is unknown; those of the chunks are known
		text, whole = "sha256('')", ""
	}
	sql := fmt.Sprintf(into+`)
		SELECT %d, %s, '', %s, substr(sha256(string_agg(e.text_hash, '' ORDER BY e.chunk_no)), 1, 8), 0, '0/0'
		FROM %s AS e WHERE e.text_hash IS NOT NULL GROUP BY 2%s`, id, p.KeyExpression("e"), text, p.Into(), whole)
	if f.Kept != 0 {
		sql = fmt.Sprintf(into+`, norm_hash, ignored) SELECT %d, l.row_key, '', l.text_hash, l.vector_hash, 0, '0/0', l.norm_hash,
			l.ignored FROM embedsidecar.ledger AS l WHERE l.pipeline_id = %d AND l.text_hash IS NOT NULL`, id, f.Kept)
	}
	_, err := tx.Exec(ctx, sql)
	return wrap.Errorf(err, "take over the vectors of %s", p.DestinationName())
}

// vectorBlocks is how many blocks of a table one statement reads: ALTER and TRUNCATE wait for it, and everyone queues
// behind them.
const vectorBlocks = 2048

// holdsVectors reports whether the destination holds any vector. table is the OID of the embedding table, or 0.
func holdsVectors(ctx context.Context, db database.Beginner, p *pipeline.Pipeline,
	table uint32,
) (holds bool, err error) {
	where := ""
	if p.InSource() {
		table, where = p.OID, " AND "+p.VectorOf("r")+" IS NOT NULL"
	}
	type leaf struct {
		OID    uint32
		Name   string
		Blocks int64
	}
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("look for vectors in %s: %w", p.DestinationName(), err)
	}
	var leaves []leaf
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		leaves, err = database.Collect(ctx, tx, "table_blocks", pgx.RowToStructByName[leaf],
			pgx.StrictNamedArgs{"table": table})
		return err
	})
	if err != nil {
		return fail(err)
	}
	for _, l := range leaves {
		for block := int64(0); block <= l.Blocks && !holds; block += vectorBlocks {
			sql := fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s AS r WHERE r.ctid >= '(%d,0)' AND r.ctid < '(%d,0)'%s)",
				l.Name, block, block+vectorBlocks, where)
			err := database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql).Scan(&holds) })
			if database.Denied(err) {
				// A role that may read only this column may not read ctid.
				sql = "SELECT EXISTS (SELECT FROM ONLY " + l.Name + " AS r WHERE true" + where + ")"
				block = l.Blocks
				err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql).Scan(&holds) })
			}
			if err != nil {
				return fail(err)
			}
		}
	}
	return holds, nil
}
