package replication

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// docs is a pipeline over a table whose stream has the columns id, title, body, embedding, in that order.
func docs(change func(p *pipeline.Pipeline)) *pipeline.Pipeline {
	p := &pipeline.Pipeline{
		Spec: pipeline.Spec{IntoColumn: "embedding"}, ID: 7, OID: 1, Key: []pipeline.KeyColumn{{Name: "id"}},
		Watched: []string{"title", "body"},
		Form:    pipeline.Form{Stored: pipeline.StoredVector},
	}
	change(p)
	return p
}

// announced is a relation of some columns, of which id and title are the replica identity.
func announced(names ...string) *pglogrepl.RelationMessage {
	rel := &pglogrepl.RelationMessage{ReplicaIdentity: 'd'}
	for _, name := range names {
		c := &pglogrepl.RelationMessageColumn{Name: name}
		if name == "id" || name == "title" {
			c.Flags = inIdentity
		}
		rel.Columns = append(rel.Columns, c)
	}
	return rel
}

// values is a tuple: "NULL" and "TOAST" stand for what they say.
func values(list ...string) columns {
	row := make(columns, len(list))
	for i, v := range list {
		row[i] = &pglogrepl.TupleDataColumn{DataType: asText, Data: []byte(v)}
		switch v {
		case "NULL":
			row[i] = &pglogrepl.TupleDataColumn{DataType: null}
		case "TOAST":
			row[i] = &pglogrepl.TupleDataColumn{DataType: unchanged}
		case "":
			row[i].Data = nil // as pglogrepl gives it
		}
	}
	return row
}

func begun() *transaction {
	return &transaction{begin: &pglogrepl.BeginMessage{Xid: 99, FinalLSN: 1000}}
}

// keysOf are the keys of what was taken, in order.
func keysOf(changes []queue.Change) []string {
	var keys []string
	for i := range changes {
		keys = append(keys, changes[i].RowKey)
	}
	return keys
}

// all takes what was added, as if the transaction were over.
func all(b *buffer) taken {
	b.commit(0, false)
	return b.take()
}

// scansOf are the pipelines whose rows are to be compared, in order.
func scansOf(t taken) []int32 { return slices.Sorted(maps.Keys(t.scans)) }

func TestRoute_FindsItsColumns(t *testing.T) {
	t.Parallel()
	plain := func(*pipeline.Pipeline) {}
	for name, c := range map[string]struct {
		change  func(p *pipeline.Pipeline)
		columns []string
		none    bool // no row can be named
		always  bool // every change is looked at
	}{
		"all there":               {plain, []string{"id", "title", "body", "embedding"}, false, false},
		"in another order":        {plain, []string{"embedding", "body", "extra", "title", "id"}, false, false},
		"the key is missing":      {plain, []string{"title", "body", "embedding"}, true, false},
		"no key is known":         {func(p *pipeline.Pipeline) { p.Key = nil }, []string{"id"}, true, false},
		"a watched column is not": {plain, []string{"id", "title", "embedding"}, false, true},
		"nor the destination":     {plain, []string{"id", "title", "body"}, false, true},
		"what a text reads is not known": {
			func(p *pipeline.Pipeline) { p.WatchAll, p.Watched = true, nil },
			[]string{"id", "title", "body", "embedding"},
			false, true,
		},
		"an embedding table": {
			func(p *pipeline.Pipeline) { p.IntoColumn = "" },
			[]string{"id", "title", "body"},
			false,
			false,
		},
	} {
		r := newRoute(docs(c.change), announced(c.columns...))
		if (r == nil) != c.none || r != nil && r.always != c.always {
			t.Errorf("%s: %+v, want none: %t, always: %t", name, r, c.none, c.always)
		}
	}
}

// What an UPDATE means: which rows are looked at, and what the ledger would have to say for nothing to be done.
func TestRoute_UpdatesNameTheirRows(t *testing.T) {
	t.Parallel()
	composite := func(p *pipeline.Pipeline) { p.Key = []pipeline.KeyColumn{{Name: "id"}, {Name: "title"}} }
	plain := func(*pipeline.Pipeline) {}
	for name, c := range map[string]struct {
		change   func(p *pipeline.Pipeline)
		row, old columns
		keys     []string
		scan     bool
	}{
		"an update": {plain, values("1", "t", "b", "[1]"), nil, []string{"1"}, false},
		"the key moved": {
			plain, values("2", "t", "b", "[1]"), values("1", "NULL", "NULL", "NULL"),
			[]string{"1", "2"},
			false,
		},
		"the old row names the same": {
			plain, values("1", "t", "b", "[1]"), values("1", "x", "y", "[1]"),
			[]string{"1"},
			false,
		},
		"a key in TOAST": {
			composite, values("1", "TOAST", "b", "[1]"), values("1", "long", "b", "[1]"),
			[]string{"1|long"},
			false,
		},
		"a key in TOAST, and no old row": {composite, values("1", "TOAST", "b", "[1]"), nil, nil, true},
		"a key that is NULL":             {plain, values("NULL", "t", "b", "[1]"), nil, nil, true},
		"an old row that lacks the key": {
			plain, values("1", "t", "b", "[1]"), values("NULL", "x", "NULL", "NULL"),
			[]string{"1"},
			true,
		},
		"a key outside of the replica identity": {
			func(p *pipeline.Pipeline) { p.Key = []pipeline.KeyColumn{{Name: "body"}} }, values("1", "t", "b", "[1]"), nil,
			[]string{"b"},
			true,
		},
		"a key with the separator within": {composite, values("1", "a|b", "b", "[1]"), nil, []string{`1|a\|b`}, false},
	} {
		r, b := newRoute(docs(c.change), announced("id", "title", "body", "embedding")), newBuffer()
		r.change(begun(), c.row, c.old, false, b)
		got := all(b)
		if !slices.Equal(keysOf(got.changes), c.keys) || (len(got.scans) > 0) != c.scan {
			t.Errorf("%s: rows %q, scans %v; want rows %q, a scan: %t", name, keysOf(got.changes), got.scans, c.keys, c.scan)
		}
	}
}

func TestRoute_InsertsAndDeletesAreLookedAt(t *testing.T) {
	t.Parallel()
	r, b := newRoute(docs(func(*pipeline.Pipeline) {}), announced("id", "title", "body", "embedding")), newBuffer()
	r.change(begun(), values("1", "t", "b", "NULL"), nil, true, b)
	r.change(begun(), nil, values("2", "NULL", "NULL", "NULL"), false, b)
	r.change(begun(), nil, values("NULL", "NULL", "NULL", "NULL"), false, b) // another replica identity
	got := all(b)
	if !slices.Equal(keysOf(got.changes), []string{"1", "2"}) || !slices.Equal(scansOf(got), []int32{7}) {
		t.Fatalf("rows %q, scans %v", keysOf(got.changes), got.scans)
	}
	for i, c := range got.changes {
		if c.Unchanged != nil || c.XID != 99 || c.LSN != 1000 || c.PipelineID != 7 {
			t.Errorf("change %d is %+v", i, c)
		}
	}
}

// matches reports whether a pattern fits an entry of the ledger: a LIKE without %.
func matches(pattern pipeline.Pattern, entry []byte) bool {
	at := 0
	for i := 0; i < len(pattern); i, at = i+1, at+1 {
		c := pattern[i]
		if at >= len(entry) {
			return false
		}
		if c == '_' {
			continue
		}
		if c == '\\' {
			i++
			c = pattern[i]
		}
		if entry[at] != c {
			return false
		}
	}
	return at == len(entry)
}

// entry is what the ledger says of a row.
func entry(vector []float32, texts ...string) []byte {
	var h pipeline.SourceHash
	for _, text := range texts {
		if text == "NULL" {
			h = h.AppendColumn(nil)
		} else {
			h = h.AppendColumn([]byte(text))
		}
	}
	v := pipeline.VectorHash(vector)
	return append(h, v[:]...)
}

// An update is dropped where the ledger says what the row now is. What the WAL does not say may be anything.
func TestPatternOf_SaysWhatTheLedgerMustHold(t *testing.T) {
	t.Parallel()
	vector := []float32{1, 2.5}
	for name, c := range map[string]struct {
		row, old columns
		fits     []byte
		not      []byte
	}{
		"all is known": {
			values("1", "t", "b", "[1,2.5]"), nil, entry(vector, "t", "b"), entry(vector, "t", "c"),
		},
		"NULL is no text": {
			values("1", "NULL", "b", "[1,2.5]"), nil, entry(vector, "NULL", "b"), entry(vector, "", "b"),
		},
		"an empty text": {
			values("1", "", "b", "[1,2.5]"), nil, entry(vector, "", "b"), entry(vector, "NULL", "b"),
		},
		"no vector": {values("1", "t", "b", "NULL"), nil, entry(nil, "t", "b"), entry(vector, "t", "b")},
		"a text in TOAST": {
			values("1", "t", "TOAST", "[1,2.5]"), nil, entry(vector, "t", "whatever"),
			entry(vector, "u", "whatever"),
		},
		"TOAST, but known": {
			values("1", "t", "TOAST", "[1,2.5]"), values("1", "t", "b", "NULL"), entry(vector, "t", "b"),
			entry(vector, "t", "c"),
		},
		"TOAST, and of the old row only the key": {
			values("1", "t", "TOAST", "[1,2.5]"), values("1", "s", "NULL", "NULL"), entry(vector, "t", "whatever"),
			entry(vector, "u", "whatever"),
		},
		"a vector in TOAST": {
			values("1", "t", "b", "TOAST"), nil, entry([]float32{9}, "t", "b"), entry(vector, "t", "c"),
		},
		"a vector of somebody": {values("1", "t", "b", "garbage"), nil, append(entry(nil, "t", "b")[:32], 1, 0, 0, 0, 0, 0, 0,
			0), entry(nil, "t", "b")},
	} {
		r := newRoute(docs(func(*pipeline.Pipeline) {}), announced("id", "title", "body", "embedding"))
		p := r.patternOf(c.row, c.old)
		if !matches(p, c.fits) || matches(p, c.not) {
			t.Errorf("%s: it fits what it must: %t, and what it must not: %t", name, matches(p, c.fits), matches(p, c.not))
		}
	}
	table := newRoute(docs(func(p *pipeline.Pipeline) { p.IntoColumn = "" }), announced("id", "title", "body"))
	if p := table.patternOf(values("1", "t", "b"), nil); !matches(p, entry(vector, "t", "b")) {
		t.Error("of an embedding table the WAL says nothing, so any vector will do")
	}
}

// A long value comes as its hash: the ledger knows a text by it, and a key of such a length is one that is left out.
func TestUpdate_KnowsLongValuesByTheirHashes(t *testing.T) {
	long := strings.Repeat("long ", 1<<10)
	sum := sha256.Sum256([]byte(long))
	short := &pglogrepl.TupleDataColumn{DataType: hashed, Data: sum[:]}
	p := docs(func(*pipeline.Pipeline) {})
	r := newRoute(p, announced("id", "title", "body", "embedding"))
	row := values("1", "a", long, "[1,2]")
	want := r.patternOf(row, nil)
	row[2] = short
	if got := r.patternOf(row, nil); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	row[3] = short
	got := r.patternOf(row, nil)
	if matches(got, entry([]float32{1, 2}, "a", long)) || matches(got, entry(nil, "a", long)) {
		t.Errorf("what cannot be a vector is taken for one: %q", got)
	}
	row[0] = short
	sink := newBuffer()
	r.change(begun(), row, nil, false, sink)
	if got := all(sink); len(got.changes)+len(got.scans) > 0 || got.tooLong != 1 {
		t.Errorf("a key that is too long: %+v", got)
	}
}

// opened is a session in which a table is announced.
func opened(p *pipeline.Pipeline) *session {
	s := New(Options{Log: slog.New(slog.DiscardHandler)})
	s.SetPipelines([]pipeline.Pipeline{*p})
	return &session{
		s: s, buffer: newBuffer(), tx: begun(),
		relations: map[uint32]*relation{1: {message: announced("id", "title", "body", "embedding"), oids: []uint32{1}}},
	}
}

func tupleOf(row columns) *pglogrepl.TupleData { return &pglogrepl.TupleData{Columns: row} }

func TestSession_WhatItReadsOfATransaction(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	if err := ses.rowChange(1, tupleOf(values("1", "t", "b", "NULL")), nil, true); err != nil {
		t.Fatal(err)
	}
	if err := ses.truncate(&pglogrepl.TruncateMessage{RelationIDs: []uint32{1}}); err != nil {
		t.Fatal(err)
	}
	if err := ses.commit(&pglogrepl.CommitMessage{TransactionEndLSN: 1010}); err != nil {
		t.Fatal(err)
	}
	if got := all(ses.buffer); !slices.Equal(keysOf(got.changes), []string{"1"}) ||
		!slices.Equal(scansOf(got), []int32{7}) || got.upTo != 1010 {
		t.Errorf("rows %q, scans %v up to %s", keysOf(got.changes), got.scans, got.upTo)
	}
	// The routes are those of the pipelines as they are now.
	ses.s.SetPipelines(nil)
	ses.tx = begun()
	if err := ses.rowChange(1, tupleOf(values("2", "t", "b", "NULL")), nil, true); err != nil ||
		len(all(ses.buffer).changes) != 0 {
		t.Errorf("%v: a change of a table that no pipeline reads was taken", err)
	}
	if ses.s.stats.Changes.Load() != 2 || ses.s.stats.Transactions.Load() != 1 {
		t.Errorf("%d changes, %d transactions are counted", ses.s.stats.Changes.Load(), ses.s.stats.Transactions.Load())
	}
}

// TestP9_AQuietRelationKeepsNoOlderPipelines: partitions of before do not change any more, and pipelines are loaded
// again and again.
func TestP9_AQuietRelationKeepsNoOlderPipelines(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	ses.relations[2] = &relation{message: announced("id", "title", "body", "embedding"), oids: []uint32{2, 1}}
	change := func(id uint32) {
		t.Helper()
		if err := ses.rowChange(id, tupleOf(values("1", "t", "b", "NULL")), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	change(1)
	if change(2); len(ses.relations[2].routes) != 1 {
		t.Fatal("a partition has no routes")
	}
	ses.s.SetPipelines([]pipeline.Pipeline{*docs(func(*pipeline.Pipeline) {})})
	if change(1); len(ses.relations[1].routes) != 1 || ses.relations[2].routes != nil {
		t.Errorf("routes %v, and of the quiet relation %v", ses.relations[1].routes, ses.relations[2].routes)
	}
}

// What was made durable before a restart is not taken again.
func TestSession_SkipsWhatWasHandled(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(*pipeline.Pipeline) {}))
	ses.replayed = true
	if err := errors.Join(
		ses.rowChange(1, tupleOf(values("1", "t", "b", "NULL")), nil, true),
		ses.truncate(&pglogrepl.TruncateMessage{RelationIDs: []uint32{1}}),
		ses.commit(&pglogrepl.CommitMessage{TransactionEndLSN: 1010}),
	); err != nil {
		t.Fatal(err)
	}
	if got := all(ses.buffer); len(got.changes)+len(got.scans) != 0 || ses.s.stats.Replayed.Load() != 1 || ses.replayed {
		t.Errorf("%+v was taken, %d transactions are told to be replayed", got, ses.s.stats.Replayed.Load())
	}
}

func TestSession_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	row := tupleOf(values("1", "t", "b", "NULL"))
	for name, do := range map[string]func(ses *session) error{
		"a change of a relation that nobody announced": func(ses *session) error { return ses.rowChange(2, row, nil, true) },
		"a row of another width": func(ses *session) error {
			return ses.rowChange(1, tupleOf(values("1")),
				nil, true)
		},
		"a delete without a key": func(ses *session) error { return ses.rowChange(1, nil, nil, false) },
		"a truncate of nobody's table": func(ses *session) error {
			return ses.truncate(
				&pglogrepl.TruncateMessage{RelationIDs: []uint32{3}})
		},
		"a change outside a transaction": func(ses *session) error {
			ses.tx = nil
			return ses.rowChange(1, row, nil, true)
		},
		"a commit outside a transaction": func(ses *session) error {
			ses.tx = nil
			return ses.commit(&pglogrepl.CommitMessage{})
		},
		"an empty frame": func(ses *session) error {
			_, err := ses.copyData(t.Context(), nil)
			return err
		},
		"a frame of another kind": func(ses *session) error {
			_, err := ses.copyData(t.Context(), []byte("?"))
			return err
		},
	} {
		if err := do(opened(docs(func(*pipeline.Pipeline) {}))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table whose rows cannot be named is scanned instead, whatever happens to it.
func TestSession_ABlindTableIsScanned(t *testing.T) {
	t.Parallel()
	ses := opened(docs(func(p *pipeline.Pipeline) { p.Key = []pipeline.KeyColumn{{Name: "other"}} }))
	if err := ses.rowChange(1, tupleOf(values("1", "t", "b", "NULL")), nil, true); err != nil {
		t.Fatal(err)
	}
	if got := all(ses.buffer); len(got.changes) != 0 || fmt.Sprint(scansOf(got)) != "[7]" {
		t.Errorf("rows %q, scans %v", keysOf(got.changes), got.scans)
	}
}

// Memory is bounded by the buffer: beyond a number of changes nothing more is read, and a key that no index can hold
// is counted.
func TestBuffer_IsBounded(t *testing.T) {
	t.Parallel()
	b := newBuffer()
	for i := range maxBatch {
		if b.pour() {
			t.Fatalf("it is full after %d", i)
		}
		b.add(queue.Change{RowKey: "k"})
		b.commit(0, false)
	}
	b.add(queue.Change{RowKey: strings.Repeat("k", pipeline.MaxKey+1)})
	if got := b.take(); len(got.changes) != maxBatch || got.tooLong != 1 {
		t.Errorf("%d changes, %d too long", len(got.changes), got.tooLong)
	}
	if b.pour() {
		t.Error("it is full after all was taken")
	}
	// The end of a transaction of which everything was taken before is saved at once.
	b.add(queue.Change{RowKey: "k"})
	b.commit(0, false)
	b.take()
	b.commit(50, false)
	if got := b.take(); !got.hurry || got.upTo != 50 {
		t.Errorf("hurry %t up to %s", got.hurry, got.upTo)
	}
}
