package rows

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// What a batch holds is looked at before it is sent; what a server does with it is tried in package sidecar.

// verbs are the beginnings of a batch's statements.
func verbs(batch *pgx.Batch) string {
	var list []string
	for _, q := range batch.QueuedQueries {
		verb, rest, _ := strings.Cut(q.SQL, " ")
		switch {
		case strings.HasPrefix(rest, "pg_catalog.set_config('search_path'"):
			verb = "theirs"
			if q.Arguments[0] == database.OwnPath {
				verb = "ours"
			}
		}
		list = append(list, verb)
	}
	return strings.Join(list, " ")
}

// A write-back to a column runs triggers under their own path and nothing else, and looks at what they left.
func TestColumn_RunsTriggersUnderTheirPath(t *testing.T) {
	t.Parallel()
	source := pipeline.SourceHash("source")
	locks := &Locks{Sources: map[string]pipeline.SourceHash{"1": source, "2": source}}
	change := Change{
		Write: []Write{{Key: "1", Vector: []float32{1, 2, 3}}}, Empty: []string{"2"}, Remove: []string{"3"},
	}
	for _, c := range []struct {
		triggers bool
		change   Change
		want     string
	}{
		{false, change, "theirs UPDATE ours theirs UPDATE ours"},
		{true, change, "theirs UPDATE ours theirs UPDATE ours theirs SET ours SELECT"},
		{true, Change{Empty: change.Empty}, "theirs UPDATE ours theirs SET ours"},
		{true, Change{Remove: change.Remove}, ""}, // a column's vector went with its row
	} {
		p := shapes()["column_vector"]
		p.Triggers = c.triggers
		into := newColumn(p, Options{UserPath: "app"})
		batch := &pgx.Batch{}
		if err := into.queue(batch, &c.change, locks); err != nil || verbs(batch) != c.want {
			t.Errorf("%+v: %v, %q, want %q", c.change, err, verbs(batch), c.want)
		}
	}
}

// Lanes are read in a transaction that can do nothing else.
func TestLanes_OnlyRead(t *testing.T) {
	t.Parallel()
	batch, visible := &pgx.Batch{}, false
	lanes, err := New(shapes()["table"], nil, Options{}).queueLanes(batch, []string{"1", "2"}, []int64{7}, &visible)
	if err != nil || lanes == nil || len(batch.QueuedQueries) != 3 ||
		batch.QueuedQueries[0].SQL != "SET LOCAL transaction_read_only = on" {
		t.Fatalf("%v, %v, %q", err, lanes, verbs(batch))
	}
	if err := batch.QueuedQueries[1].Fn(told{values: []bool{true}}); err != nil || !visible {
		t.Errorf("visible %t, %v", visible, err)
	}
}

// A column whose name means another by now is not written.
func TestColumn_IsTheOneThatWasLookedAt(t *testing.T) {
	t.Parallel()
	p := shapes()["column_vector"]
	p.IntoNumber = 3
	for same, want := range map[bool]error{true: nil, false: ErrOtherColumn} {
		batch := &pgx.Batch{}
		_, err := New(p, nil, Options{}).QueueLock(batch, []string{"1"})
		if err != nil || verbs(batch) != "SELECT SELECT SELECT" {
			t.Fatalf("%v, %q", err, verbs(batch))
		}
		if err := batch.QueuedQueries[2].Fn(told{values: []bool{same}}); !errors.Is(err, want) {
			t.Errorf("the same %t: %v", same, err)
		}
	}
}

func TestColumn_LocksTheRowsItTouches(t *testing.T) {
	t.Parallel()
	table := New(shapes()["column_vector"], nil, Options{})
	for keys, want := range map[int]string{0: "SELECT", 2: "SELECT SELECT"} {
		batch := &pgx.Batch{}
		guarded := table.QueueGuard(batch, nil) // nothing: nobody can put another table in the place of the source
		locks, err := table.QueueLock(batch, []string{"1", "2"}[:keys])
		if err != nil || guarded != nil || verbs(batch) != want || locks == nil {
			t.Errorf("%d keys: %v, %q, want %q", keys, err, verbs(batch), want)
		}
		if locks.Hold("1") {
			t.Error("a row is held before the server said so")
		}
		locks.Sources["1"] = pipeline.SourceHash{1}
		if !locks.Hold("1") || locks.Hold("2") {
			t.Error("held is another row than the one that was locked")
		}
	}
}

// Nobody else writes an embedding table: nothing is locked, and what is written is made sure to be the same table.
func TestP4_AnEmbeddingTableLocksNobodysRows(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"table", "table_composite_key", "chunks"} {
		p := shapes()[shape]
		p.IntoOID = 4711
		table, batch := New(p, nil, Options{}), &pgx.Batch{}
		err := table.QueueGuard(batch, nil)
		if got := verbs(batch); err != nil || got != "LOCK SELECT" || batch.QueuedQueries[1].Arguments[1] != uint32(4711) {
			t.Errorf("%s: the guard is %q of %v", shape, got, batch.QueuedQueries[1].Arguments)
		}
		locks, err := table.QueueLock(batch, []string{"1"})
		if locks != nil || err != nil || batch.Len() != 2 || !locks.Hold("1") || table.OfUsers() {
			t.Errorf("%s: rows are locked: %v, %v", shape, locks, err)
		}
	}
}

func TestEmbeddingTable_WritesInOrder(t *testing.T) {
	t.Parallel()
	into, batch := newEmbeddingTable(shapes()["table"]), &pgx.Batch{}
	err := into.queue(batch, &Change{
		Write: []Write{{Key: "1", TextHash: []byte("h"), Vector: []float32{1, 2, 3}}}, Adopt: []string{"2"},
		Empty: []string{"3"}, Remove: []string{"4"},
	})
	if err != nil || verbs(batch) != "INSERT UPDATE DELETE WITH" {
		t.Fatalf("%v, %q", err, verbs(batch))
	}
	for i, key := range []string{"1", "2", "3", "4"} {
		if got, _ := batch.QueuedQueries[i].Arguments[0].([]string); !slices.Equal(got, []string{key}) {
			t.Errorf("statement %d is about %v, want %s", i+1, got, key)
		}
	}
	into = newEmbeddingTable(shapes()["table_composite_key"])
	for _, bad := range []Change{
		{Write: []Write{{Key: "1"}}}, {Adopt: []string{"1"}}, {Empty: []string{"1"}}, {Remove: []string{"1"}},
	} {
		if err := into.queue(&pgx.Batch{}, &bad); !errors.Is(err, ErrSplit) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Of chunks, those are written that have no vector there, and those shifted that have another place.
func TestChunks_WritesWhatChanged(t *testing.T) {
	t.Parallel()
	text := "one two three"
	cut := func(start, end int, from *StoredChunk) Chunk {
		return Chunk{
			Chunk: chunk.Chunk{Start: start, End: end}, Hash: pipeline.TextHash(text[start:end]), From: from, Stays: from != nil,
			Vector: []float32{1, 2, 3},
		}
	}
	w := Write{Key: "1", Text: text, Chunks: []Chunk{
		cut(0, 3, &StoredChunk{Start: 0, End: 3, Generation: 4, HasText: true}),
		cut(4, 7, &StoredChunk{No: 1, Start: 5, End: 8, Generation: 4, HasText: true}),
		cut(8, 13, nil),
		cut(0, 3, &StoredChunk{No: 3, Start: 0, End: 3, Generation: 3, HasText: true}),
		cut(4, 7, &StoredChunk{No: 4, Start: 4, End: 7, Generation: 4}),
	}}
	c := newChunks(shapes()["chunks"], nil)
	shifted, put, ends := c.changed([]Write{w})
	if !slices.Equal(shifted.nos, []int{1, 3, 4}) || !slices.Equal(put.nos, []int{2}) || !slices.Equal(ends, []int{5}) {
		t.Errorf("shifted are %v, written %v, of %v chunks", shifted.nos, put.nos, ends)
	}
	if shifted.texts[0] != nil || shifted.texts[2] == nil || *shifted.texts[2] != "two" || *put.texts[0] != "three" {
		t.Errorf("the texts are %v and %v", shifted.texts, put.texts)
	}
	for _, s := range []statement{c.chunks.put, c.chunks.shift} {
		window := put.window(0)
		if args, err := s.args(c.p, window.keys, window.values(c.p)); err != nil || len(args) != len(s.params) {
			t.Errorf("%d parameters of %v, %v", len(args), s.params, err)
		}
	}
	other := w
	other.Chunks = w.Chunks[1:]
	if table := New(c.p, nil, Options{}); table.VectorHash(&w) == table.VectorHash(&other) || table.Chunks() == nil {
		t.Error("other chunks have the same hash")
	}
}

// A write-back of chunks goes by windows: what is behind the last one of a row goes first, and what cannot be shifted
// was moved by somebody.
func TestChunks_WritesByWindows(t *testing.T) {
	t.Parallel()
	c := newChunks(shapes()["chunks"], nil)
	stays := StoredChunk{Start: -1, End: -1}
	w := Write{Key: "1", Text: "x", Chunks: make([]Chunk, 2*chunkWindow+2)}
	for no := range chunkWindow + 1 {
		w.Chunks[no] = Chunk{From: &stays, Stays: true}
	}
	steps, err := c.steps([]Write{w, {Key: "2"}})
	if err != nil || len(steps) != 5 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	for i, want := range []struct {
		statement
		rows  int // that must be there
		keys  int
		first int // number of the chunk
	}{
		{c.chunks.end, 0, 2, 0},
		{c.chunks.shift, chunkWindow, chunkWindow, 0},
		{c.chunks.shift, 1, 1, chunkWindow},
		{c.chunks.put, 0, chunkWindow, chunkWindow + 1},
		{c.chunks.put, 0, 1, 2*chunkWindow + 1},
	} {
		got := steps[i]
		keys, _ := got.args[0].([]string)
		if got.sql != want.sql || got.rows != want.rows || len(keys) != want.keys || len(got.args) != len(want.params) {
			t.Errorf("step %d is %s with %d parameters for %d keys, of which %d must be there", i, got.sql, len(got.args),
				len(keys), got.rows)
		}
		if at := slices.Index(want.params, chunkNumbers.name); at >= 0 {
			if nos, _ := got.args[at].([]int); len(nos) == 0 || nos[0] != want.first {
				t.Errorf("step %d is about the chunks %v, want them from %d on", i, nos, want.first)
			}
		}
	}
	if ends, _ := steps[0].args[slices.Index(c.chunks.end.params, "chunks")].([]int); !slices.Equal(ends,
		[]int{len(w.Chunks), 0}) {
		t.Errorf("the rows end with chunk %v", ends)
	}
}

// What is stored of a row is what is ours: somebody's own table may hold what no chunk of ours is.
func TestChunks_TakesWhatIsStored(t *testing.T) {
	t.Parallel()
	start, end, hash := 3, 7, pipeline.TextHash("text")
	whole := storedLine{no: 1, start: &start, end: &end, generation: 4, hash: hash[:], text: true, respell: true}
	want := StoredChunk{No: 1, Start: 3, End: 7, Generation: 4, Hash: hash, HasText: true, Respell: true}
	nowhere := want
	nowhere.Start, nowhere.End = -1, -1
	for name, c := range map[string]struct {
		change func(*storedLine)
		want   StoredChunk
		ok     bool
	}{
		"all of it":      {func(*storedLine) {}, want, true},
		"without a hash": {func(l *storedLine) { l.hash = nil }, StoredChunk{}, false},
		"a short hash":   {func(l *storedLine) { l.hash = hash[:8] }, StoredChunk{}, false},
		"no beginning":   {func(l *storedLine) { l.start = nil }, nowhere, true},
		"no end":         {func(l *storedLine) { l.end = nil }, nowhere, true},
	} {
		l := whole
		c.change(&l)
		if got, ok := l.chunk(); ok != c.ok || got != c.want {
			t.Errorf("%s: %+v, %t, want %+v", name, got, ok, c.want)
		}
	}
}

// Vectors are read after what they belong to, so somebody may have written between.
func TestChunks_VectorsAreThoseOfTheChunks(t *testing.T) {
	t.Parallel()
	c := newChunks(shapes()["chunks"], nil)
	for n, want := range map[int]error{1: ErrMoved, 2: nil, 3: ErrMoved} {
		vectors := [][]float32{{1}, {2}, {3}}[:n]
		chunks := make([]DeepChunk, 2)
		if err := c.fill(chunks, vectors); !errors.Is(err, want) || !slices.Equal(chunks[0].Vector, vectors[0]) {
			t.Errorf("%d vectors for two chunks: %v, the first is %v", n, err, chunks[0].Vector)
		}
		if n == 2 && !slices.Equal(chunks[1].Vector, vectors[1]) {
			t.Errorf("the second is %v", chunks[1].Vector)
		}
	}
	if err := c.fill(nil, nil); err != nil {
		t.Errorf("a row without chunks: %v", err)
	}
}

func TestChunkRows_WindowsEndWithTheRows(t *testing.T) {
	t.Parallel()
	var r chunkRows
	w := Write{Key: "1", Text: "x", Chunks: make([]Chunk, chunkWindow+1)}
	for no := range w.Chunks {
		r.add(&w, no, false)
	}
	first, second := r.window(0), r.window(chunkWindow)
	if len(first.keys) != chunkWindow || len(second.nos) != 1 || second.nos[0] != chunkWindow {
		t.Errorf("windows of %d and %d rows", len(first.keys), len(second.nos))
	}
}

// To find out whether anything can be written all of it is tried, with no row in hand.
func TestNone_WritesNothing(t *testing.T) {
	t.Parallel()
	for shape, p := range shapes() {
		table := New(p, nil, Options{})
		steps, err := table.none()
		if err != nil || len(steps) != 2 {
			t.Errorf("%s: %d steps, %v", shape, len(steps), err)
			continue
		}
		all := table.statements()
		for i, name := range []string{"empty", "write"} {
			if s := all[name]; steps[i].sql != s.sql || len(steps[i].args) != len(s.params) || steps[i].rows != 0 {
				t.Errorf("%s: step %d is %q with %d parameters", shape, i, steps[i].sql, len(steps[i].args))
			}
			for at, arg := range steps[i].args {
				if v := reflect.ValueOf(arg); v.Kind() != reflect.Slice || v.Len() > 0 {
					t.Errorf("%s: parameter %d of step %d is %v", shape, at+1, i, arg)
				}
			}
		}
	}
}

// What triggers have left of a row is judged by what was written, and by what was locked.
func TestColumn_JudgesWhatTriggersLeft(t *testing.T) {
	t.Parallel()
	before, broken := pipeline.SourceHash("before"), errors.New("broken")
	locks := &Locks{Sources: map[string]pipeline.SourceHash{"1": pipeline.SourceHash("another"), "2": before}}
	for name, c := range map[string]struct {
		kept   bool
		source string
		answer error
		moved  []int
		want   error
	}{
		"nothing happened":             {true, "before", broken, nil, nil},
		"the vector is another":        {false, "before", nil, nil, errReplaced},
		"the vector and the text are":  {false, "after", nil, nil, errReplaced},
		"the text is another":          {true, "after", nil, []int{1}, nil},
		"... and nobody can note that": {true, "after", broken, []int{1}, broken},
	} {
		var moved []int
		change := Change{Write: []Write{{Key: "1"}, {Key: "2"}}, Moved: func(i int) error {
			moved = append(moved, i)
			return c.answer
		}}
		if err := change.left(1, locks, c.kept, []byte(c.source)); !errors.Is(err, c.want) || !slices.Equal(moved, c.moved) {
			t.Errorf("%s: %v, told of %v, want %v and %v", name, err, moved, c.want, c.moved)
		}
		if change.Moved = nil; c.kept {
			if err := change.left(1, locks, c.kept, []byte(c.source)); err != nil {
				t.Errorf("%s, and nobody asks: %v", name, err)
			}
		}
	}
	if Fault(errReplaced) != database.Data || !strings.Contains(errReplaced.Error(), "a trigger of the table") {
		t.Errorf("%v is no fault of the row's", errReplaced)
	}
}

// Vectors travel in one type, whatever they are stored as.
func TestFound_KnowsItsOwnVectors(t *testing.T) {
	t.Parallel()
	p := shapes()["column_vector"]
	table := New(p, nil, Options{})
	vector := []byte{0, 1, 0, 0, 0x3f, 0x80, 0, 0} // one number, 1
	want := pipeline.VectorHash([]float32{1})
	var r Row
	if err := table.found(vector, nil, &r); err != nil || !bytes.Equal(r.StoredHash, want[:]) {
		t.Errorf("%v, %x, want %x", err, r.StoredHash, want)
	}
	if err := table.found([]byte{1}, nil, &r); err == nil {
		t.Error("a vector that is none is read")
	}
	r.LedgerVector = want[:]
	if !table.holds(&r) || !table.current(&r) {
		t.Error("it does not know its own vector")
	}
}

func TestFault_JudgesErrorsOfOurOwn(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]database.Fault{
		errReplaced: database.Data, ErrSplit: database.Data, ErrMoved: database.Conflict,
		errors.New("who knows"): database.Judge(errors.New("who knows")),
	} {
		if got := Fault(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A page that takes too long is read again by smaller ones, and pages grow again.
func TestP4_PagesThatTakeTooLongAreSmaller(t *testing.T) {
	t.Parallel()
	p := New(shapes()["table"], nil, Options{}).Pages()
	slow := true
	var sizes []int
	p.briefly = func(ctx context.Context, limit time.Duration, f func(context.Context, pgx.Tx) error) error {
		if slow && limit > 0 {
			_ = f(ctx, nil)
			return &pgconn.PgError{Code: pgerrcode.QueryCanceled}
		}
		return f(ctx, nil)
	}
	p.read = func(_ context.Context, _ database.Reader, keys []string, _ int) ([]Row, error) {
		sizes = append(sizes, len(keys))
		slow = slow && len(keys) > 100
		return make([]Row, len(keys)), nil
	}
	n := 0
	err := p.Read(t.Context(), make([]string, 400), func(found []Row) { n += len(found) }, nil)
	if want := []int{400, 100, 25, 50, 100, 200, 25}; err != nil || n != 400 || !slices.Equal(sizes, want) {
		t.Errorf("%v, %d rows were read, in pages of %d, want %d", err, n, sizes, want)
	}
}

// A page that takes nearly as long as it may is not followed by a larger one, which would be read for nothing.
func TestPages_StayAsLargeAsTimeAllows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(shapes()["table"], nil, Options{}).Pages()
		p.briefly = func(ctx context.Context, limit time.Duration, f func(context.Context, pgx.Tx) error) error {
			start := time.Now()
			if err := f(ctx, nil); err != nil || limit == 0 || time.Since(start) < limit {
				return err
			}
			return &pgconn.PgError{Code: pgerrcode.QueryCanceled}
		}
		var sizes []int
		p.read = func(_ context.Context, _ database.Reader, keys []string, _ int) ([]Row, error) {
			time.Sleep(time.Duration(len(keys)) * pageTime / 30) //nolint:forbidigo // the bubble's time: what the server takes
			sizes = append(sizes, len(keys))
			return make([]Row, len(keys)), nil
		}
		err := p.Read(t.Context(), make([]string, 400), func([]Row) {}, nil)
		if want := append([]int{400, 100, 25}, slices.Repeat([]int{25}, 15)...); err != nil || !slices.Equal(sizes, want) {
			t.Errorf("%v, pages of %d rows, want %d", err, sizes, want)
		}
	})
}

// asked is a transaction that notes what it is asked, and answers with keys.
type asked struct {
	pgx.Tx
	sql    []string
	answer func(sql string) (keys []string, err error)
}

func (a *asked) Query(_ context.Context, sql string, _ ...any) (pgx.Rows, error) {
	a.sql = append(a.sql, sql)
	keys, err := a.answer(sql)
	return &keysTold{keys: keys, err: err}, nil
}

// keysTold are keys that the ledger knows.
type keysTold struct {
	pgx.Rows
	keys []string
	at   int
	err  error
}

func (k *keysTold) Next() bool                                 { k.at++; return k.at <= len(k.keys) }
func (k *keysTold) Err() error                                 { return k.err }
func (*keysTold) Close()                                       {}
func (*keysTold) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (*keysTold) FieldDescriptions() []pgconn.FieldDescription { return nil }

func (k *keysTold) Scan(into ...any) error {
	key, _ := into[0].(*string)
	known, _ := into[1].(*bool)
	*key, *known = k.keys[k.at-1], true
	return nil
}

// A condition that holds for one row of millions does not have a statement read all of them, which who alters the table
// would wait for: rows are gone through in portions.
func TestP4_AConditionForFewRowsIsReadInPortions(t *testing.T) {
	t.Parallel()
	p := New(shapes()["table_composite_key"], nil, Options{}).Pages()
	var limits []time.Duration
	tx := &asked{answer: func(sql string) ([]string, error) {
		if strings.Contains(sql, `"embedsidecar met"`) {
			return []string{"9|a", "7|b"}, nil
		}
		return nil, &pgconn.PgError{Code: pgerrcode.QueryCanceled}
	}}
	p.briefly = func(ctx context.Context, limit time.Duration, f func(context.Context, pgx.Tx) error) error {
		limits = append(limits, limit)
		return f(ctx, tx)
	}
	after := "11|x"
	for _, after := range []*string{nil, &after} {
		keys, known, err := p.Rows(t.Context(), "r.author = 5", after)
		if err != nil || !slices.Equal(keys, []string{"9|a", "7|b"}) || !slices.Equal(known, []bool{true, true}) {
			t.Errorf("keys %q, known %t, error %v", keys, known, err)
		}
	}
	if want := 6 + 2; len(tx.sql) != want || slices.Contains(limits, 0) { // 1000, 250, 62, 15, 3 and 1 row; two portions
		t.Errorf("%d statements, want %d, within %s", len(tx.sql), want, limits)
	}
	golden(t, "pages", "-- first\n"+readable(tx.sql[0])+"\n-- sparse, first\n"+readable(tx.sql[6])+
		"\n-- sparse, next\n"+readable(tx.sql[7]))
}

// A row that cannot be read is found, and every other one is handed on, in order.
func TestP5_PagesLeaveOutTheRowAtFault(t *testing.T) {
	t.Parallel()
	p := New(shapes()["table"], nil, Options{}).Pages()
	p.briefly = func(ctx context.Context, _ time.Duration, f func(context.Context, pgx.Tx) error) error {
		return f(ctx, nil)
	}
	p.read = func(_ context.Context, _ database.Reader, keys []string, _ int) ([]Row, error) {
		found := make([]Row, len(keys))
		for i, key := range keys {
			if found[i].Key = key; key == "c" {
				return nil, &pgconn.PgError{Code: pgerrcode.DivisionByZero}
			}
		}
		return found, nil
	}
	var read, bad []string
	err := p.Read(t.Context(), []string{"a", "b", "c", "d", "e"}, func(found []Row) {
		for i := range found {
			read = append(read, found[i].Key)
		}
	}, func(key string, _ error) { bad = append(bad, key) })
	if err != nil || !slices.Equal(read, []string{"a", "b", "d", "e"}) || !slices.Equal(bad, []string{"c"}) {
		t.Errorf("%v, read are %v, refused %v", err, read, bad)
	}
	p.read = func(context.Context, database.Reader, []string, int) ([]Row, error) {
		return nil, errors.New("connection lost")
	}
	if err := p.Read(t.Context(), []string{"a", "b"}, nil, nil); err == nil {
		t.Error("what fails for all is taken for a row's fault")
	}
}

// How many rows are read at a time goes by what comes along with them.
func TestPages_FewerRowsWithVectors(t *testing.T) {
	t.Parallel()
	table := New(shapes()["table"], nil, Options{}).Pages()
	wide := shapes()["column_vector"]
	wide.Dims = 4096
	column := New(wide, nil, Options{}).Pages()
	if table.vectorRows() != PageRows || column.vectorRows() != 512 {
		t.Errorf("pages of %d and %d rows, want %d and 512", table.vectorRows(), column.vectorRows(), PageRows)
	}
	if keys, _, err := column.Vectors(t.Context(), nil); keys != nil || err != nil {
		t.Errorf("a column has rows of its own: %v, %v", keys, err)
	}
	split, composite := "1", New(shapes()["table_composite_key"], nil, Options{}).Pages()
	if _, _, err := composite.Rows(t.Context(), "", &split); !errors.Is(err, ErrSplit) {
		t.Errorf("a page after a key of one column: %v", err)
	}
}

// A chunk's vector is asked for unless it is there, stored, or not needed.
func TestChunk_Unknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chunk Chunk
		want  bool
	}{
		"new":      {Chunk{}, true},
		"embedded": {Chunk{Vector: []float32{1}}, false},
		"stored":   {Chunk{From: &StoredChunk{No: 3}}, false},
		"no token": {Chunk{Empty: true}, false},
	} {
		if got := c.chunk.Unknown(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
