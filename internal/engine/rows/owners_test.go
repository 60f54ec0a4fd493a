package rows

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Rows are found by the values that joined rows have, each value by an argument of its column.
func TestOwners_AsksByTheValuesOfJoinedRows(t *testing.T) {
	t.Parallel()
	p := shapes()["table"]
	p.Joins = pipeline.Joins{{
		Schema: "public", Table: "tags", As: "tags", Text: "string_agg(name, ',')",
		On: []pipeline.On{
			{Column: "of", Of: "id", Type: "bigint", Exact: true}, {Column: "tenant", Of: "tenant", Type: "text", Exact: true},
		},
	}}
	table := New(p, nil, Options{})
	values := []string{pipeline.JoinKey([]string{"1", "a"}), pipeline.JoinKey([]string{"2", "b"})}
	sql, args, err := table.ownersBy(p.Links()[0], values)
	if err != nil || fmt.Sprint(args...) != "[1 2] [a b]" {
		t.Fatalf("%v: %v", err, args)
	}
	for _, want := range []string{
		"$2::text[]", `r."id" OPERATOR(pg_catalog.=) k.v1::bigint`, `r."tenant" OPERATOR(pg_catalog.=) k.v2::text`,
		"LIMIT 501", "LIMIT 2001",
	} {
		if !strings.Contains(sql, want) {
			t.Errorf("no %s in %s", want, sql)
		}
	}
	if _, _, err := table.ownersBy(p.Links()[0], []string{"1"}); err == nil {
		t.Error("one value for two columns is taken")
	}
}

// What a destination is by itself: chunks are listed, and only what is not written into users' rows is written at once.
func TestTable_WhatEachDestinationIs(t *testing.T) {
	t.Parallel()
	for shape, atOnce := range map[string]bool{
		"table": true, "column_vector": false, "column_bit": false, "chunks": false,
	} {
		table := New(shapes()[shape], nil, Options{})
		if (table.Chunks() != nil) != (shape == "chunks") {
			t.Errorf("%s: its chunks are listed: %v", shape, shape != "chunks")
		}
		if got := table.CanWriteAtOnce(); got != atOnce {
			t.Errorf("%s: what is ready is written in one statement: %v", shape, got)
		}
		w := Write{Vector: []float32{1, 0, 0}}
		if got, want := table.VectorHash(&w), shapes()[shape].Stored.Hash(w.Vector); got != want && shape != "chunks" {
			t.Errorf("%s: hash %x, want %x", shape, got, want)
		}
	}
}
