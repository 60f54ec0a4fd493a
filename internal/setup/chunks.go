package setup

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// hasColumns reports whether a table has some columns of ours with their types.
func (t *table) hasColumns(columns []ownColumn) bool {
	for _, own := range columns {
		if got, ok := t.column(own.name); !ok || got.TypeName != own.typeName {
			return false
		}
	}
	return true
}

// hashIndex returns the statement that makes the index by which the vector of a known text is found.
func hashIndex(spec interface{ Into() string }) string {
	return "CREATE INDEX ON " + spec.Into() + " (text_hash)"
}

// addChunkColumns returns the statements that make an embedding table one of chunks.
func (f *findings) addChunkColumns() []string {
	var sql []string
	if !f.destination.Chunked {
		columns := make([]string, len(chunkColumns))
		for i, c := range chunkColumns {
			columns[i] = "ADD COLUMN IF NOT EXISTS " + database.Quote(c.name) + " " + c.definition
		}
		sql = append(sql, "ALTER TABLE "+f.pipeline.Into()+" "+strings.Join(columns, ", "))
	}
	if !f.destination.Indexed {
		sql = append(sql, hashIndex(f.pipeline.Spec))
	}
	return sql
}

// makeChunkColumns plans to make an embedding table that is there one of chunks.
func makeChunkColumns(f *findings) (a action, needed bool) {
	sql := f.addChunkColumns()
	if !f.pipeline.Chunking.On() || len(sql) == 0 {
		return a, false
	}
	return action{
		Step:    Step{What: "columns and index of chunks in " + f.pipeline.Into(), SQL: sql},
		allowed: true, tables: []uint32{f.destination.OID}, // the server says so if not
	}, true
}

// foreign returns *ConfigError when an embedding table that init did not make would have to be changed.
func (f *findings) foreign() error {
	if !f.pipeline.Chunking.On() || !f.destination.Exists || f.destination.Mark != "" || f.destination.Chunked {
		return nil
	}
	hint := []string{"name another table: one that is not there yet is made", "or make it one yourself:"}
	for _, sql := range f.addChunkColumns() {
		hint = append(hint, sql+";")
	}
	return &refusal.ConfigError{
		Pipeline: f.pipeline.Name,
		Problem: fmt.Sprintf("the embedding table %s has no columns for chunks, and init did not make it",
			f.pipeline.Into()),
		Hint: hint,
	}
}

// chunkable returns *ConfigError when texts shall be cut and the embedding table has no place for chunks.
func (f *findings) chunkable() error {
	if !f.pipeline.Chunking.On() || f.pipeline.Chunked {
		return nil
	}
	return &refusal.ConfigError{
		Pipeline: f.pipeline.Name, Problem: fmt.Sprintf("the embedding table %s has no columns for chunks",
			f.pipeline.Into()),
		Hint: []string{"run embedsidecar init: it adds them"},
	}
}
