package rows

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// line is a result line of the statement read.
func line(change map[int]string) [][]byte {
	raw := make([][]byte, readColumns)
	for at, value := range change {
		raw[at] = []byte(value)
	}
	return raw
}

func TestScanRow_TakesWhatTheServerSays(t *testing.T) {
	t.Parallel()
	p := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "docs_embedding"}}
	w := New(p, nil, Options{})
	keys, found := []string{"1", "2", "3"}, make([]Row, 3)
	long := strings.Repeat("x", 32)
	for _, raw := range [][][]byte{
		line(map[int]string{
			readPlace: "1", readKey: "01", readKeep: "t", readText: "a\xffb", readBytes: "3", readSource: "s",
			readLedgerSource: "s", readLedgerText: long,
			readLedgerVector: "v", readLedgerGeneration: "4", readLedgerVersion: "77", readStored: long,
			readStoredGeneration: "3",
		}),
		line(map[int]string{
			readPlace: "2", readKey: "2", readKeep: "f", readBytes: "5000000", readSum: long,
			readSource: "s",
		}),
		line(map[int]string{readPlace: "3"}),
	} {
		if err := w.scan(raw, keys, found); err != nil {
			t.Fatal(err)
		}
	}
	first, second, third := &found[0], &found[1], &found[2]
	if !first.Found || first.Actual != "01" || !first.Keep || first.Text != "a\uFFFDb" || !first.Broken || !first.Ledger ||
		first.LedgerGeneration != 4 ||
		first.LedgerVersion != "77" || !first.Stored || first.StoredGeneration != 3 ||
		first.TextHash != pipeline.TextHash("a\uFFFDb") {
		t.Errorf("the first row is %+v", first)
	}
	if !second.LeftOut() || !second.Hashed || string(second.TextHash[:]) != long || second.Keep || second.Wanted() {
		t.Errorf("the second row, whose text was left out, is %+v", second)
	}
	if third.Found || third.Ledger || third.Stored || third.Wanted() {
		t.Errorf("the third row, which is gone, is %+v", third)
	}
}

// What is screened has a verdict beside the row; a text that had to be mended is not known by its hash.
func TestScanScreened_VerdictsOfRows(t *testing.T) {
	t.Parallel()
	w := New(&pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "docs_embedding"}}, nil, Options{})
	keys := []string{"1", "2"}
	s := Screened{Verdicts: make([]string, len(keys)), Rows: make([]Row, len(keys))}
	screened := func(place, text, verdict, visible string) [][]byte {
		raw := line(map[int]string{readPlace: place, readKey: place, readKeep: "t", readText: text, readBytes: "2"})
		for range screenColumns - readColumns {
			raw = append(raw, nil)
		}
		raw[screenVerdict], raw[screenVisible], raw[screenKnown] = []byte(verdict), []byte(visible), []byte("f")
		return raw
	}
	for _, raw := range [][][]byte{screened("1", "ab", "now", "t"), screened("2", "a\xff", "task", "f")} {
		if err := w.scanScreened(raw, keys, &s); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(s.Verdicts, []string{"now", "task"}) || !s.Hidden || !s.Rows[0].New || s.Rows[1].New {
		t.Errorf("%+v", s)
	}
	if err := w.scanScreened(screened("3", "ab", "now", "t"), keys, &s); err == nil {
		t.Error("there is a third row")
	}
}

func TestScanRow_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	w := New(&pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}}, nil, Options{})
	for name, change := range map[string]map[int]string{
		"a place beyond the keys": {readPlace: "2"},
		"no place":                {readPlace: ""},
		"bytes":                   {readPlace: "1", readKey: "1", readBytes: "many"},
		"a generation":            {readPlace: "1", readLedgerSource: "s", readLedgerGeneration: "x"},
		"a stored generation":     {readPlace: "1", readStored: "s", readStoredGeneration: "9999999999"},
	} {
		if err := w.scan(line(change), []string{"1"}, make([]Row, 1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestArgs_OneArrayForEachColumnOfTheKey(t *testing.T) {
	t.Parallel()
	p := &pipeline.Pipeline{Key: make([]pipeline.KeyColumn, 2)}
	s := build(p, func(b *builder) string { return b.param("last") + b.list(keysAsTheyAre, array{"last", "text"}) })
	keys := []string{`1|a\|b`, `2|c`}
	args, err := s.args(p, keys, values{"last": 7, "another": 8})
	if want := []any{7, []string{"1", "2"}, []string{"a|b", "c"}, keys}; err != nil || !reflect.DeepEqual(args, want) {
		t.Fatalf("%v, %v, want %v", args, err, want)
	}
	if _, err := s.args(p, []string{"1"}, values{"last": 7}); !errors.Is(err, ErrSplit) {
		t.Errorf("a key of one column: %v", err)
	}
	if _, err := s.args(p, keys, nil); err == nil || errors.Is(err, ErrSplit) {
		t.Errorf("no value for a parameter: %v", err)
	}
}

// The vector that is not of the row's text counts for nothing, whoever wrote it.
func TestIntact_WhatTheDestinationMustHold(t *testing.T) {
	t.Parallel()
	chunked := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}, Form: pipeline.Form{Chunked: true}, Generation: 1}
	hash := pipeline.TextHash("all chunks")
	r := Row{
		Ledger: true, LedgerText: []byte("text"), LedgerVector: hash[:pipeline.VectorHashSize], LedgerGeneration: 1,
		Stored: true, StoredHash: hash[:], StoredGeneration: 1,
	}
	if !New(chunked, nil, Options{}).Intact(&r) {
		t.Error("the chunks that were written are not taken for such")
	}
	for name, change := range map[string]func(r *Row){
		"a chunk was changed":          func(r *Row) { r.StoredHash = make([]byte, len(hash)) },
		"some are of another model":    func(r *Row) { r.StoredGeneration = -1 },
		"none is stored":               func(r *Row) { r.Stored = false },
		"the entry is older":           func(r *Row) { r.LedgerGeneration = 0 },
		"it is to be embedded anew":    func(r *Row) { r.LedgerVector = nil },
		"it has no text, and a vector": func(r *Row) { r.LedgerText = nil },
	} {
		other := r
		change(&other)
		if New(chunked, nil, Options{}).Intact(&other) {
			t.Errorf("%s: it is taken for intact", name)
		}
	}
}

// There is nothing to do for a row whose text, key and vector are what they were: and whatever is not so is found.
func TestUnchanged_NothingButTheSame(t *testing.T) {
	t.Parallel()
	shape := shapes()["table"]
	table, text := New(shape, nil, Options{}), pipeline.TextHash("text")
	base := Row{
		Key: "1", Found: true, Actual: "1", Keep: true, Text: "text", Bytes: 4, Hashed: true, TextHash: text,
		Source: pipeline.SourceHash("source"), Ledger: true, LedgerSource: []byte("source"), LedgerText: text[:],
		LedgerVector: []byte("vector"), LedgerGeneration: shape.Generation, Stored: true, StoredHash: text[:],
		StoredGeneration: shape.Generation,
	}
	empty := func(r *Row) { // without a text, and so without a vector
		r.Text, r.Bytes, r.TextHash, r.LedgerText, r.Stored, r.StoredHash = "", 0, pipeline.TextHash(""), nil, false, nil
	}
	for name, c := range map[string]struct {
		change func(*Row)
		want   bool
	}{
		"all is the same":                    {func(*Row) {}, true},
		"the row is gone":                    {func(r *Row) { r.Found = false }, false},
		"the key is spelled anew":            {func(r *Row) { r.Actual = "01" }, false},
		"a column changed":                   {func(r *Row) { r.Source = pipeline.SourceHash("other") }, false},
		"the text did though no column":      {func(r *Row) { r.TextHash = pipeline.TextHash("other") }, false},
		"nobody knows its hash":              {func(r *Row) { r.Hashed, r.TextHash = false, pipeline.TextHash("") }, true},
		"the filter keeps it out":            {func(r *Row) { r.Keep = false }, false},
		"the text is blank now":              {func(r *Row) { r.Text, r.Bytes = " ", 0 }, false},
		"it has no text":                     {empty, true},
		"it has no text, but the ledger has": {func(r *Row) { empty(r); r.LedgerText = text[:] }, false},
		"it has no text, but a vector":       {func(r *Row) { empty(r); r.Stored = true }, false},
		"its text has no token": {func(r *Row) {
			r.LedgerText, r.LedgerNorm, r.Stored = nil, r.TextHash[:], false
		}, true},
		"another text had no token": {func(r *Row) {
			r.LedgerText, r.LedgerNorm, r.Stored = nil, text[:7], false
		}, false},
		"the filter kept it out":              {func(r *Row) { r.LedgerText, r.Stored = nil, false }, false},
		"somebody put another vector there":   {func(r *Row) { r.StoredHash = []byte("other") }, false},
		"the vector is of another generation": {func(r *Row) { r.StoredGeneration-- }, false},
		"nothing is known of it":              {func(r *Row) { r.Ledger = false }, false},
		"it is to be embedded anew":           {func(r *Row) { r.LedgerVector = nil }, false},
	} {
		r := base
		if c.change(&r); table.Unchanged(&r) != c.want {
			t.Errorf("%s: unchanged %t, want %t", name, !c.want, c.want)
		}
	}
}

// A text counts as the one that its vector is of if what counts is the same by the same rule, and what the ledger says
// of that is about that text.
func TestIgnored_WhatCountsIsTheSame(t *testing.T) {
	t.Parallel()
	text, edited := pipeline.TextHash("text"), pipeline.TextHash("TEXT")
	base := Row{
		Key: "1", Found: true, Actual: "1", Keep: true, Text: "TEXT", Hashed: true, TextHash: edited, Norm: []byte("text"),
		Ledger: true, LedgerText: text[:],
	}
	base.LedgerNorm = base.NormOf(text[:])
	other := base
	other.Norm = []byte("other")
	for name, c := range map[string]struct {
		change func(*Row)
		want   bool
	}{
		"another text that counts as the same":   {func(*Row) {}, true},
		"the very text":                          {func(r *Row) { r.TextHash = text }, false},
		"another text":                           {func(r *Row) { r.Norm = []byte("other") }, false},
		"nothing counts as another":              {func(r *Row) { r.Norm = nil }, false},
		"nothing is known of what counted":       {func(r *Row) { r.LedgerNorm = nil }, false},
		"what counted was of another text":       {func(r *Row) { r.LedgerNorm = r.NormOf(edited[:]) }, false},
		"what counted was otherwise":             {func(r *Row) { r.LedgerNorm = other.NormOf(text[:]) }, false},
		"there was no text":                      {func(r *Row) { r.LedgerText = nil }, false},
		"the text is too large to have its hash": {func(r *Row) { r.Hashed = false }, false},
	} {
		r := base
		if c.change(&r); r.Ignored() != c.want || c.want && !r.SameText() {
			t.Errorf("%s: ignored %t, the same %t, want %t", name, r.Ignored(), r.SameText(), c.want)
		}
	}
}

// A row is skipped as long as it is what its writer saw who said that it needs no new vector.
func TestSkips_WhatItsWriterSaw(t *testing.T) {
	t.Parallel()
	shape := shapes()["table"]
	table, text := New(shape, nil, Options{}), pipeline.TextHash("text")
	source := pipeline.SourceHash(bytes.Repeat([]byte("s"), pipeline.ColumnHashSize))
	base := Row{
		Key: "1", Found: true, Actual: "1", Keep: true, Hashed: true, TextHash: text, Source: source, Ledger: true,
		LedgerSource: source, LedgerText: text[:], LedgerVector: []byte("vector"), LedgerGeneration: shape.Generation,
		Stored: true, StoredHash: text[:], StoredGeneration: shape.Generation, Skipped: text[:],
	}
	isNew := func(r *Row) { r.Ledger, r.LedgerSource, r.Stored = false, nil, false }
	for name, c := range map[string]struct {
		change         func(*Row)
		insert         bool
		skipped, skips bool
	}{
		"as he left it":                 {func(*Row) {}, false, true, true},
		"nobody said so":                {func(r *Row) { r.Skipped = nil }, false, false, true},
		"its text is another since":     {func(r *Row) { r.TextHash = pipeline.TextHash("other") }, false, false, true},
		"its columns are":               {func(r *Row) { r.Source = bytes.Repeat([]byte("o"), pipeline.ColumnHashSize) }, false, false, false},
		"its key is spelled anew":       {func(r *Row) { r.Actual = "01" }, false, false, false},
		"somebody put a vector there":   {func(r *Row) { r.StoredHash = []byte("other") }, false, false, false},
		"a new row":                     {isNew, true, false, true},
		"one that had no vector before": {isNew, false, false, false},
		"one that has a vector":         {func(r *Row) { r.Ledger = false }, true, false, false},
	} {
		r := base
		c.change(&r)
		seen := pipeline.NewSeen(c.insert).Append(source)
		if got := table.Skipped(&r); got != c.skipped {
			t.Errorf("%s: skipped %t, want %t", name, got, c.skipped)
		}
		if got := table.Skips(&r, seen); got != c.skips {
			t.Errorf("%s: skips %t, want %t", name, got, c.skips)
		}
	}
	if table.Skips(&base, nil) {
		t.Error("a row is skipped though nobody said so")
	}
}

// A table says which text and which generation its vector is of; the ledger also knows the vector.
func TestTable_HoldsTheVectorOfTheText(t *testing.T) {
	t.Parallel()
	table, text := New(shapes()["table"], nil, Options{}), pipeline.TextHash("text")
	r := Row{Ledger: true, LedgerText: text[:], Stored: true, StoredHash: text[:], StoredGeneration: 1}
	if !table.Holds(&r) { // of whatever generation: a pipeline's model never changes
		t.Error("its own vector is not known")
	}
	if r.StoredHash = []byte("other"); table.Holds(&r) {
		t.Error("the vector of another text is taken for it")
	}
	vector := []float32{1, 2, 3}
	if table.VectorHash(&Write{Vector: vector}) != pipeline.VectorHash(vector) {
		t.Error("the ledger gets another hash than that of the vector")
	}
}

// The hash of a text is that of what is embedded of the row; where no column stands for the text it is part of the
// source hash.
func TestScanRow_HashesWhatIsEmbedded(t *testing.T) {
	t.Parallel()
	chunked, whole, body := shapes()["chunks"], shapes()["table_partitioned_filter_text"], pipeline.TextHash("body")
	raw := line(map[int]string{
		readPlace: "1", readKey: "1", readKeep: "t", readText: "body", readBytes: "4", readTitle: "ti\xfftle",
		readSource: "s",
	})
	for name, c := range map[string]struct {
		p      *pipeline.Pipeline
		text   [32]byte
		source pipeline.SourceHash
	}{
		"plain": {shapes()["table"], body, pipeline.SourceHash("s")},
		"chunked": {
			chunked, chunked.Chunking.ChunkedHash("body", "ti\uFFFDtle"), pipeline.SourceHash("s"),
		},
		"a text of the whole row": {whole, body, pipeline.SourceHash("s").AppendSum(body[:])},
	} {
		found := make([]Row, 1)
		err := New(c.p, nil, Options{}).scan(raw, []string{"1"}, found)
		if r := found[0]; err != nil || r.TextHash != c.text || !bytes.Equal(r.Source, c.source) || r.Title != "ti\uFFFDtle" {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}

// A key that was written when the table had another one is found out before anything is asked: there is no server here.
func TestErrSplit_BeforeTheServerIsAsked(t *testing.T) {
	t.Parallel()
	two := shapes()["table_composite_key"].Key
	shape := func(name string) *Table {
		p := shapes()[name]
		p.Key = two
		return New(p, nil, Options{})
	}
	table, column, chunks := shape("table"), shape("column_vector"), shape("chunks")
	pages, ctx, bad := table.Pages(), t.Context(), "1"
	pages.briefly = func(ctx context.Context, _ time.Duration, f func(context.Context, pgx.Tx) error) error {
		return f(ctx, nil)
	}
	keys := []string{bad}
	for name, ask := range map[string]func() error{
		"read":           func() error { _, err := table.Read(ctx, keys, 0); return err },
		"lanes":          func() error { _, err := table.queueLanes(&pgx.Batch{}, keys, nil, nil); return err },
		"given":          func() error { _, err := table.Given(ctx, &Given{Key: []string{"a", "b"}}, keys); return err },
		"vectors":        func() error { _, err := table.Vectors(ctx, keys); return err },
		"column vectors": func() error { _, err := column.Vectors(ctx, keys); return err },
		"lock":           func() error { _, err := column.QueueLock(&pgx.Batch{}, keys); return err },
		"write": func() error {
			return column.Write(ctx, nil, &Change{Write: []Write{{Key: bad}}}, &Locks{})
		},
		"empty":        func() error { return column.Write(ctx, nil, &Change{Empty: keys}, &Locks{}) },
		"table write":  func() error { return table.Write(ctx, nil, &Change{Remove: keys}, nil) },
		"chunks write": func() error { return chunks.Write(ctx, nil, &Change{Write: []Write{{Key: bad}}}, nil) },
		"stored":       func() error { _, err := chunks.Chunks().Stored(ctx, keys); return err },
		"fetch": func() error {
			return chunks.Chunks().FetchMoved(ctx, keys, []*Chunk{{From: &StoredChunk{}}})
		},
		"deep":         func() error { _, err := chunks.Chunks().Deep(ctx, bad); return err },
		"gone":         func() error { _, _, err := pages.Gone(ctx, keys); return err },
		"page":         func() error { _, _, err := pages.Vectors(ctx, &bad); return err },
		"chunks' page": func() error { _, _, err := chunks.Pages().Vectors(ctx, &bad); return err },
	} {
		if err := ask(); !errors.Is(err, ErrSplit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if table.IsKey(ctx, bad) {
		t.Error("it is taken for a key")
	}
	without := New(shapes()["chunks_without_text"], nil, Options{}).Chunks()
	if err := without.Known(ctx, [][]byte{{1}}, nil); err != nil { // without an index nothing is looked for
		t.Errorf("known: %v", err)
	}
}

// The next page begins after a key of several columns; a key that has several rows is there once.
func TestPages_GoOnAfterAKey(t *testing.T) {
	t.Parallel()
	p := shapes()["table_composite_key"]
	s, key := New(p, nil, Options{}).sql.rows.next, `1|a\|b`
	args, err := s.after(p, &key, values{"max": 7})
	if err != nil || len(args) != len(s.params) {
		t.Fatalf("%v, %v", args, err)
	}
	for i, name := range s.params {
		if want := map[string]any{"k1": "1", "k2": "a|b", "max": 7}[name]; args[i] != want {
			t.Errorf("parameter %q is %v, want %v", name, args[i], want)
		}
	}
	var (
		keys []string
		gone []bool
	)
	for _, row := range []struct {
		key  string
		gone bool
	}{{"3", false}, {"3", false}, {"2", true}, {"1", false}, {"1", false}} {
		keys, gone = appendKey(keys, gone, row.key, row.gone)
	}
	if !slices.Equal(keys, []string{"3", "2", "1"}) || !slices.Equal(gone, []bool{false, true, false}) {
		t.Errorf("keys %v, gone %v", keys, gone)
	}
}

// Vectors go to the server in the type in which they are stored there.
func TestParameter_InTheTypeOfTheColumn(t *testing.T) {
	t.Parallel()
	writes := []Write{{Vector: []float32{1, 0.5}}, {Vector: nil}}
	sparse, ok := vectorsOf(shapes()["column_sparsevec"], writes).([]pipeline.Sparse)
	if !ok || len(sparse) != 2 || sparse[0].Dims != 3 || !slices.Equal(sparse[0].Pairs, writes[0].Vector) {
		t.Errorf("sparse: %v", sparse)
	}
	dense, ok := vectorsOf(shapes()["column_halfvec"], writes).([]pgvector.Vector)
	if !ok || len(dense) != 2 || !slices.Equal(dense[0].Slice(), writes[0].Vector) {
		t.Errorf("dense: %v", dense)
	}
}
