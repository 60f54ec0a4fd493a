package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// tagged is a pipeline whose texts have the names of tags, and their relation: article_id says whose they are.
func tagged(identity uint8, names ...string) (*pipeline.Pipeline, *pglogrepl.RelationMessage) {
	p := docs(func(p *pipeline.Pipeline) {
		p.Joins = pipeline.Joins{{
			Schema: "public", Table: "tags", As: "tags", Text: "string_agg(name, ',')", OID: 2,
			On:   []pipeline.On{{Column: "article_id", Of: "id", Type: "bigint", Exact: true}},
			Uses: []string{"article_id", "name"},
		}}
	})
	rel := announced(names...)
	rel.ReplicaIdentity = identity
	return p, rel
}

// A change of a joined row is a look at the rows that it has a part in, and at those that it had one in before.
func TestJoined_LooksAtTheRowsOfBeforeAndAfter(t *testing.T) {
	t.Parallel()
	p, rel := tagged('f', "id", "article_id", "name")
	r := newJoined(p, 1, rel)
	if r == nil || r.noOld {
		t.Fatalf("with the whole old row: %+v", r)
	}
	key := func(v string) string { return pipeline.JoinKey([]string{v}) }
	long := strings.Repeat("x", pipeline.MaxKey+1)
	for name, c := range map[string]struct {
		row, old columns
		want     []string
		scan     bool
	}{
		"new":               {values("1", "7", "a"), nil, []string{key("7")}, false},
		"of nobody":         {values("1", "NULL", "a"), nil, nil, false},
		"gone":              {nil, values("1", "7", "a"), []string{key("7")}, false},
		"edited":            {values("1", "7", "b"), values("1", "7", "a"), []string{key("7")}, false},
		"moved":             {values("1", "8", "a"), values("1", "7", "a"), []string{key("7"), key("8")}, false},
		"given to nobody":   {values("1", "NULL", "a"), values("1", "7", "a"), []string{key("7")}, false},
		"the same":          {values("2", "7", "a"), values("1", "7", "a"), nil, false},
		"long, and the old": {values("1", "TOAST", "b"), values("1", "7", "a"), []string{key("7")}, false},
		"long, and unknown": {values("1", "TOAST", "b"), nil, nil, true},
		"longer than a key": {values("1", long, "b"), nil, nil, true},
	} {
		sink := &buffer{}
		r.change(begun(), c.row, c.old, c.old == nil, sink)
		got := all(sink)
		if !slices.Equal(keysOf(got.changes), c.want) || (len(scansOf(got)) > 0) != c.scan {
			t.Errorf("%s: %.40q and scans %v, want %.40q and %v", name, keysOf(got.changes), scansOf(got), c.want, c.scan)
		}
		for _, change := range got.changes {
			if change.Join != 1 || change.PipelineID != p.ID {
				t.Errorf("%s: %+v", name, change)
			}
		}
	}
}

// Where the WAL does not name the old values, only what is new can be told.
func TestJoined_WithoutOldValuesAsksForAScan(t *testing.T) {
	t.Parallel()
	p, rel := tagged('d', "id", "article_id", "name")
	r := newJoined(p, 1, rel)
	if r == nil || !r.noOld {
		t.Fatalf("with the key alone: %+v", r)
	}
	sink := &buffer{}
	r.change(begun(), values("1", "7", "a"), nil, true, sink)
	if got := all(sink); len(got.changes) != 1 || len(got.scans) != 0 {
		t.Errorf("an insert: %+v", got)
	}
	sink = &buffer{}
	r.change(begun(), values("1", "7", "a"), nil, false, sink)
	if got := all(sink); len(got.changes) != 0 || !slices.Equal(scansOf(got), []int32{p.ID}) {
		t.Errorf("an update: %+v", got)
	}
	if p, rel := tagged('f', "id", "name"); newJoined(p, 1, rel) != nil {
		t.Error("a relation without the column that says whose it is")
	}
	p, rel = tagged('f', "id", "article_id") // a generated column is not in the WAL
	if r := newJoined(p, 1, rel); r == nil || r.same(values("1", "7"), values("1", "7")) {
		t.Error("a change of what is not in the WAL is taken for none")
	}
}
