package setup

import (
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
)

// retype plans to give the key of an embedding table the types that its source's has.
func retype(f *resolve.Findings) (a step.Action, needed bool) {
	return step.Action{
		Step: step.Step{What: "type of the key in " + f.Pipeline.Into() + " as that of " + f.Table.Quoted() +
			" (the table is rewritten; searches wait for it)", SQL: f.Destination.Retype},
		Allowed: true, Tables: []uint32{f.Destination.IntoOID}, // the server says so if not
	}, f.Destination.Retype != nil
}

// makeChunkColumns plans to make an embedding table that is there one of chunks.
func makeChunkColumns(f *resolve.Findings) (a step.Action, needed bool) {
	sql := f.AddChunkColumns()
	if !f.Pipeline.Chunking.On() || len(sql) == 0 {
		return a, false
	}
	return step.Action{
		Step:    step.Step{What: "columns and index of chunks in " + f.Pipeline.Into(), SQL: sql},
		Allowed: true, Tables: []uint32{f.Destination.IntoOID}, // the server says so if not
	}, true
}
