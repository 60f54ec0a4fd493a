package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

const (
	textA = "The first text has a sentence. And it has another one, which is a little longer than the first. Then it ends."
	textB = "A second text."
)

func process(t *testing.T, w *Worker, m *memory, keys ...string) map[string]string {
	t.Helper()
	if err := w.process(t.Context(), tasksFor(keys...)); err != nil {
		t.Fatal(err)
	}
	return m.ends()
}

func wantEnds(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: the tasks end as %v, want %v", what, got, want)
	}
}

// Each look makes the destination what the row is, and costs the embedder what has changed.
func TestP8_LooksPayForWhatChanged(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w, m, e := inMemory(t, p, nil)
			m.source = map[string]string{"a": textA, "b": textB, "blank": " \n"}
			wantEnds(t, "at first", process(t, w, m, "a", "b", "blank", "gone"), map[string]string{
				"a": "embedded", "b": "embedded", "blank": "emptied", "gone": "removed",
			})
			if len(m.stored) != 2 {
				t.Errorf("%d vectors are stored, want 2", len(m.stored))
			}
			paid := e.calls()
			wantEnds(t, "as it was", process(t, w, m, "a", "b", "blank"), map[string]string{
				"a": "unchanged", "b": "unchanged", "blank": "unchanged",
			})
			m.source["c"] = m.source["b"] // the text of another row
			delete(m.source, "a")
			m.source["b"] = "\t"
			wantEnds(t, "then", process(t, w, m, "c", "a", "b"), map[string]string{
				"c": "reused", "a": "removed", "b": "emptied",
			})
			if e.calls() != paid {
				t.Errorf("%d texts were paid for twice", e.calls()-paid)
			}
			if _, there := m.stored["c"]; !there || len(m.stored) != 1 {
				t.Errorf("stored are %d rows, want c", len(m.stored))
			}
			p := *p
			p.Generation++
			other, n, e := inMemory(t, &p, nil)
			n.source, n.stored, n.ledger = m.source, m.stored, m.ledger
			wantEnds(t, "of another generation", process(t, other, n, "c"), map[string]string{"c": "unchanged"})
			if e.calls() != 0 || n.ledger["c"].LedgerGeneration != p.Generation {
				t.Errorf("%d calls, the ledger is of generation %d", e.calls(), n.ledger["c"].LedgerGeneration)
			}
		})
	}
}

// TestP1_AFilterThatChangesWithoutTheRow: what a filter says, or what the text is, may change though no watched column
// does: a generated column has another expression, or the time has come. A comparison finds such a row. It does not
// find a text without tokens again and again.
func TestP1_AFilterThatChangesWithoutTheRow(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w, m, _ := inMemory(t, p, nil)
			m.source = map[string]string{"a": textA, "none": withoutTokens}
			m.out = map[string]bool{"a": true}
			wantEnds(t, "left out", process(t, w, m, "a", "none"), map[string]string{"a": "emptied", "none": "emptied"})
			wantEnds(t, "as it was", process(t, w, m, "a", "none"), map[string]string{"a": "unchanged", "none": "unchanged"})
			m.out = nil
			found, err := m.Read(t.Context(), []string{"a"}, 1<<20)
			var report Report
			if err != nil || w.verifyRow(&report, &found[0]) || report.Missing != 1 {
				t.Errorf("verify finds %+v, error %v", report, err)
			}
			wantEnds(t, "let in", process(t, w, m, "a", "none"), map[string]string{"a": "embedded", "none": "unchanged"})
			if len(m.stored) != 1 {
				t.Errorf("%d vectors are stored, want that of a", len(m.stored))
			}
		})
	}
}

// TestP10_ATextThatIsAnsweredLaterDoesNotDiffer: a provider's rate limit says nothing about the stored vector, which
// verify --repair would buy again.
func TestP10_ATextThatIsAnsweredLaterDoesNotDiffer(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w, m, e := inMemory(t, p, nil)
			m.source = map[string]string{"a": "One text.", "b": "Another text."}
			process(t, w, m, "a", "b")
			sample := w.embedSample
			if w.chunks != nil {
				sample = w.embedChunkSample
			}
			for class, want := range map[embed.Class]int64{embed.Transient: 0, embed.Resource: 0, embed.Data: 1} {
				e.refuse["One text."] = &embed.TextError{Class: class, Code: "refused"}
				var report Report
				if err := sample(t.Context(), &report, []string{"a", "b"}); err != nil || report.Differ != want {
					t.Errorf("%s error: %+v, want that %d differ; error %v", class, report, want, err)
				}
			}
		})
	}
}

// Rows may get the keys of other rows. A column goes with its row, and the ledger does not: it tells of the row that
// had the key, until a batch writes over it.
func TestP8_KeysThatRowsExchangeCostNothing(t *testing.T) {
	t.Parallel()
	p := forms()["column"]
	w, m, _ := inMemory(t, p, nil)
	m.source = map[string]string{"a": textA, "b": textB, "c": "third"}
	process(t, w, m, "a", "b", "c")
	other, n, e := inMemory(t, p, nil) // it remembers nothing
	n.ledger, n.writes = m.ledger, m.writes
	n.source = map[string]string{"a": "third", "b": textA, "c": textB}
	n.stored = map[string]kept{"a": m.stored["c"], "b": m.stored["a"], "c": m.stored["b"]}
	wantEnds(t, "first batch", process(t, other, n, "a"), map[string]string{"a": "reused"})
	wantEnds(t, "second batch", process(t, other, n, "b", "c"), map[string]string{"b": "reused", "c": "reused"})
	if e.calls() != 0 {
		t.Errorf("%d texts were paid for twice", e.calls())
	}
	for key, text := range n.source {
		if got, want := n.stored[key].vector, vectorOf(text); !slices.Equal(got, want) {
			t.Errorf("row %s has vector %v, want %v", key, got, want)
		}
	}
}

// Of chunks, those that an edit leaves as they were keep their vectors, also under another number.
func TestP8_ChunksThatMoveKeepTheirVectors(t *testing.T) {
	t.Parallel()
	w, m, e := inMemory(t, forms()["chunks"], nil)
	m.source["a"] = textA
	process(t, w, m, "a")
	before := len(m.stored["a"].chunks)
	if before < 2 {
		t.Fatalf("%d chunks, want several", before)
	}
	paid := e.calls()
	m.source["a"] = "Something new comes before all of that was there, and is long enough for a chunk. " + textA
	wantEnds(t, "edited", process(t, w, m, "a"), map[string]string{"a": "embedded"})
	if now := len(m.stored["a"].chunks); now <= before || e.calls()-paid >= now {
		t.Errorf("%d chunks after %d, %d of them embedded", now, before, e.calls()-paid)
	}
	for no, c := range m.stored["a"].chunks {
		if want := vectorOf(c.Embedded(m.source["a"])); c.Vector[0] != want[0] || c.Vector[1] != want[1] {
			t.Errorf("chunk %d has the vector of another text", no)
		}
	}
}

// Whoever was faster has the last word, and a lease that is over writes nothing.
func TestP3_NothingOlderIsWritten(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, _ := inMemory(t, p, nil)
		m.source = map[string]string{"a": textA, "b": textB}
		process(t, w, m, "a", "b")
		m.source["a"] = "old"
		m.beforeBegin = func() {
			m.beforeBegin = nil
			entry := m.ledger["a"]
			entry.LedgerVersion, entry.LedgerText = "newer", []byte("newer")
			m.ledger["a"] = entry
		}
		before := m.stored["a"]
		wantEnds(t, form, process(t, w, m, "a"), map[string]string{"a": "overtaken"})
		if after := m.stored["a"]; string(after.hash) != string(before.hash) || string(m.ledger["a"].LedgerText) != "newer" {
			t.Errorf("%s: an older text was written over a newer one", form)
		}
		m.overdue = true
		m.source["b"] = "too late"
		if err := w.process(t.Context(), tasksFor("b")); !errors.Is(err, queue.ErrLeaseLost) || len(m.outcomes) > 0 {
			t.Errorf("%s: a lease that is over: %v, %d tasks ended", form, err, len(m.outcomes))
		}
	}
}

// A vector of a text that its row has no longer is not written over it, unless the row changes all the time.
func TestP3_NoVectorForATextThatIsGone(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		if !p.InSource() {
			continue
		}
		w, m, _ := inMemory(t, p, nil)
		for waits, want := range map[time.Duration]string{0: "overtaken", 2 * w.o.Lease: "embedded"} {
			m.source = map[string]string{"a": "before " + want}
			m.beforeBegin = func() { m.source["a"] = "after " + want }
			tasks := tasksFor("a")
			tasks[0].EnqueuedAt = time.Now().Add(-waits)
			m.outcomes = nil
			if err := w.process(t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
			if got := m.outcomes[0].What; got != want {
				t.Errorf("%s: after %s: %s, want %s", form, waits, got, want)
			}
		}
	}
}

func refused(code string) error { return &pgconn.PgError{Code: code} }

// A row whose text or trigger takes too long is found, too, and no others wait for it again.
func TestP5_ASlowRowIsTriedAloneFromThenOn(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		for _, when := range []string{"read", "written"} {
			w, m, _ := inMemory(t, p, nil)
			m.source = map[string]string{"a": textA, "b": textB, "c": "third"}
			if when == "read" {
				m.refuseRead = func(keys []string) error {
					if slices.Contains(keys, "b") {
						return database.ErrTooLong
					}
					return nil
				}
			} else {
				m.refuseWrite = func(c *rows.Change) error {
					if slices.ContainsFunc(c.Write, func(w rows.Write) bool { return w.Key == "b" }) {
						return refused(pgerrcode.QueryCanceled)
					}
					return nil
				}
			}
			tasks := tasksFor("a", "b", "c")
			tasks[1].EnqueuedAt = time.Now().Add(-time.Minute)
			if err := w.process(t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
			for i := range m.outcomes {
				switch o := &m.outcomes[i]; o.Task.RowKey {
				case "b":
					if o.Action != queue.Later || o.Losses != queue.AloneAfter || o.Attempt != 0 || o.Delay < 15*time.Second {
						t.Errorf("%s, %s: the slow row ends as %+v", form, when, o)
					}
				default:
					if o.Action != queue.Done || o.Losses != 0 {
						t.Errorf("%s, %s: %s ends as %+v", form, when, o.Task.RowKey, o)
					}
				}
			}
			if len(m.outcomes) != 3 {
				t.Errorf("%s, %s: %d tasks ended", form, when, len(m.outcomes))
			}
		}
	}
}

// A row that the database refuses is found, and the others are written.
func TestP5_ARefusedRowStaysAlone(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, _ := inMemory(t, p, nil)
		m.source = map[string]string{"a": textA, "b": textB, "c": "third", "d": "fourth"}
		m.refuseWrite = func(c *rows.Change) error {
			for i := range c.Write {
				if c.Write[i].Key == "c" {
					return refused(pgerrcode.CheckViolation)
				}
			}
			return nil
		}
		wantEnds(t, form+" written", process(t, w, m, "a", "b", "c", "d"), map[string]string{
			"a": "embedded", "b": "embedded", "c": "retried", "d": "embedded",
		})
		m.refuseWrite = nil
		m.refuseRead = func(keys []string) error {
			if strings.Contains(strings.Join(keys, ""), "c") {
				return refused(pgerrcode.DivisionByZero)
			}
			return nil
		}
		wantEnds(t, form+" read", process(t, w, m, "a", "b", "c", "d"), map[string]string{
			"a": "unchanged", "b": "unchanged", "c": "retried", "d": "unchanged",
		})
		m.refuseRead = func(keys []string) error {
			if strings.Contains(strings.Join(keys, ""), "none") {
				return refused(pgerrcode.InvalidTextRepresentation)
			}
			return nil
		}
		wantEnds(t, form+" of another type", process(t, w, m, "a", "none"), map[string]string{
			"a": "unchanged", "none": "removed",
		})
	}
}

// What fails for every row is no row's fault: nothing counts as an attempt.
func TestP5_WhatFailsForAllIsNobodysFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		read, write error
		class, code string
		parked      bool
	}{
		{"locked while it is read", refused(pgerrcode.LockNotAvailable), nil, "transient", "locked", false},
		{"locked while it is written", nil, refused(pgerrcode.LockNotAvailable), "transient", "locked", false},
		{"a column is missing", refused(pgerrcode.UndefinedColumn), nil, "configuration", "table", true},
		{"a privilege is missing", nil, refused(pgerrcode.InsufficientPrivilege), "configuration", "table", true},
		{"another table has the name", nil, rows.ErrOtherTable, "configuration", "table", true},
		{
			"a column that we do not write is NOT NULL", nil,
			&pgconn.PgError{Code: pgerrcode.NotNullViolation, ColumnName: "tenant"}, "configuration", "table", true,
		},
		{"somebody made a trigger", nil, rows.ErrTrigger, "configuration", "table", true},
	} {
		parked := false
		w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.Broken = func() { parked = true } })
		m.source = map[string]string{"a": textA, "b": textB}
		m.refuseRead = func([]string) error { return c.read }
		m.refuseWrite = func(*rows.Change) error { return c.write }
		if err := w.process(t.Context(), tasksFor("a", "b")); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, o := range m.outcomes {
			if o.Action != queue.Later || o.Attempt != 0 || o.Class != c.class || o.Code != c.code {
				t.Errorf("%s: %+v, want %s %s", c.name, o, c.class, c.code)
			}
		}
		if len(m.outcomes) != 2 || parked != c.parked {
			t.Errorf("%s: %d tasks ended, parked: %t", c.name, len(m.outcomes), parked)
		}
	}
}

// A row that somebody holds is looked at again soon; the others do not wait for it.
func TestP4_ALockedRowIsLeftOut(t *testing.T) {
	t.Parallel()
	w, m, _ := inMemory(t, forms()["column"], nil)
	m.source = map[string]string{"a": textA, "b": textB}
	m.locked["a"] = true
	wantEnds(t, "one is locked", process(t, w, m, "a", "b"), map[string]string{"a": "locked", "b": "embedded"})
	if _, there := m.ledger["a"]; there {
		t.Error("the ledger knows of a vector that was not written")
	}
}

// What a trigger changes each time is a dead letter in the end, and not for ever in work.
func TestP6_ARestlessTriggerIsFoundOut(t *testing.T) {
	t.Parallel()
	w, m, _ := inMemory(t, forms()["column"], nil)
	m.moved = true
	for i := range mostMoves + 1 {
		m.source["a"] = strings.Repeat("x", i+1)
		ends, want := process(t, w, m, "a"), "embedded"
		if i == mostMoves {
			want = "retried"
		}
		wantEnds(t, "moved", ends, map[string]string{"a": want})
	}
}

// An embedder that fails costs no row an attempt, until one was there at each of its deaths.
func TestP5_AnEmbedderThatFails(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, e := inMemory(t, p, nil)
		m.source = map[string]string{"a": textA, "b": textB}
		e.fail = &embed.Error{Class: embed.Transient, Code: "busy", Err: errors.New("busy")}
		wantEnds(t, form, process(t, w, m, "a", "b"), map[string]string{"a": "postponed", "b": "postponed"})
		e.fail = &embed.Error{Class: embed.Crash, Code: "died", Err: errors.New("died")}
		w, m, _ = inMemory(t, p, func(o *Options) { o.Service = embed.NewService(e, 0) })
		m.source = map[string]string{"a": textB}
		list := tasksFor("a")
		list[0].Losses = queue.DeadAfter - 1
		if err := w.process(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if o := m.outcomes[0]; o.Action != queue.Fail || o.Losses != queue.DeadAfter {
			t.Errorf("%s: after %d deaths: %+v", form, queue.DeadAfter, o)
		}
	}
}

// A text that the model refuses is a dead letter after its attempts, and a pipeline whose texts all fail rests.
func TestP5_ARefusedTextStaysAlone(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, e := inMemory(t, p, nil)
		m.source = map[string]string{"a": textB, "bad": "bad"}
		e.refuse["bad"] = &embed.TextError{Class: embed.Data, Code: "refused", Message: "no"}
		list := tasksFor("a", "bad")
		list[1].Attempt = 2
		if err := w.process(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		wantEnds(t, form, m.ends(), map[string]string{"a": "embedded", "bad": "failed"})
		for range restAfter {
			process(t, w, m, "bad")
		}
		if w.stats.Rest.Load() == nil {
			t.Errorf("%s: the pipeline does not rest", form)
		}
		m.source["c"] = "a text that is good"
		process(t, w, m, "c")
		if w.stats.Rest.Load() != nil {
			t.Errorf("%s: the pipeline rests on", form)
		}
	}
}

// Texts that are too large to be read along with others are read by themselves.
func TestP9_LargeTextsComeLast(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, e := inMemory(t, p, nil)
		large := strings.Repeat("This is a sentence of a text. ", firstText/30+1)
		m.source = map[string]string{"a": textB, "large": large, "c": "third"}
		ends := process(t, w, m, "a", "c", "large")
		want := map[string]string{"a": "embedded", "large": "embedded", "c": "embedded"}
		if form == "chunks" {
			want["large"] = "retried" // more chunks than a row may have
		}
		wantEnds(t, form, ends, want)
		if form != "chunks" && e.texts[len(e.texts)-1] != large {
			t.Errorf("%s: the large text was not the last", form)
		}
	}
	w, m, _ := inMemory(t, forms()["chunks"], nil)
	m.source["a"] = strings.Repeat("x ", maxChunked)
	wantEnds(t, "too large", process(t, w, m, "a"), map[string]string{"a": "retried"})
}

// A batch job gets the texts that only the embedder knows a vector for, of as many rows as have room.
func TestP8_ABatchJobGetsWhatIsNew(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, e := inMemory(t, p, nil)
		m.source = map[string]string{"a": textA, "b": textB, "c": "third"}
		m.source["large"] = strings.Repeat("This is a sentence of a text. ", firstText/30+1)
		process(t, w, m, "a")
		paid := e.calls()
		want := map[string]string{"a": "", "b": textB, "gone": ""}
		for _, keys := range [][]string{{"a", "b", "gone", "large", "c"}, {"large", "c"}} {
			wants, err := w.Wants(t.Context(), keys)
			got := map[string]string{}
			for _, one := range wants {
				got[one.Key] = strings.Join(one.Texts, "|")
			}
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%s: of %v a job gets %v, want %v; %v", form, keys, got, want, err)
			}
			if want = map[string]string{"large": ""}; form == "chunks" {
				want["c"] = "third" // chunks have their own room
			}
		}
		if e.calls() != paid {
			t.Errorf("%s: the embedder was asked", form)
		}
	}
}

// The vector of a text that another pipeline with the same embedder has is used again, if it is what was written.
func TestP8_ASiblingsVectorIsUsedAgain(t *testing.T) {
	t.Parallel()
	sibling := *forms()["table"]
	sibling.ID = 8
	w, m, e := inMemory(t, forms()["table"], func(o *Options) {
		o.Siblings = func() map[int32]*pipeline.Pipeline { return map[int32]*pipeline.Pipeline{sibling.ID: &sibling} }
	})
	m.source = map[string]string{"a": textA, "b": textB}
	m.others[8] = map[string][]float32{"x": vectorOf(textA), "y": {0, 0, 1}}
	for key, text := range map[string]string{"x": textA, "y": textB} {
		hash, vector := pipeline.TextHash(text), pipeline.VectorHash(vectorOf(text))
		m.wherever = append(m.wherever, knownVector{Pipeline: 8, Key: key, TextHash: hash[:], VectorHash: vector[:]})
	}
	wantEnds(t, "one is known", process(t, w, m, "a", "b"), map[string]string{"a": "reused", "b": "embedded"})
	if e.calls() != 1 || e.texts[0] != textB || w.stats.Known.Load() != 1 ||
		w.stats.Reused.Load() != 1 || w.stats.Embedded.Load() != 1 {
		t.Errorf("embedded are %q, %d vectors were used again", e.texts, w.stats.Known.Load())
	}
}

// A pipeline's loops take what waits to its end, and give back what nobody is at fault for.
func TestRun_FinishesBatchesAndGivesBack(t *testing.T) {
	t.Parallel()
	w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.Loops = 1 })
	m.finished = make(chan struct{}, 10)
	m.source = map[string]string{"a": textA, "b": textB, "c": "third", "d": "fourth", "e": "fifth"}
	m.todo = tasksFor("a", "b", "c", "d", "e")
	fails := true
	m.refuseRead = func([]string) error {
		if fails {
			fails = false
			m.todo = tasksFor("a", "b", "c", "d", "e")
			return errors.New("connection lost")
		}
		return nil
	}
	ctx, stop := contextOf(t)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, t.Context()) }()
	select {
	case <-m.finished:
	case <-time.After(5 * time.Minute):
		t.Error("the tasks are not finished")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(m.stored) != 5 || m.givenBack != 1 || w.stats.Batches.Load() != 3 {
		t.Errorf("%d rows are stored, %d leases were given back, in %d batches", len(m.stored), m.givenBack,
			w.stats.Batches.Load())
	}
}

// TestP1_ABatchThatItsPipelineOvertakesIsGivenBack: whatever a lease is lost by, its rows wait for nothing.
func TestP1_ABatchThatItsPipelineOvertakesIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *memory){
		"when vectors were written":    func(m *memory) { m.source, m.overtaken = map[string]string{"a": textA}, true },
		"when nothing was to be":       func(m *memory) { m.overdue = true },
		"by the server, as it is read": func(m *memory) { m.refuseRead = func([]string) error { return queue.ErrLeaseLost } },
	} {
		w, m, _ := inMemory(t, forms()["table"], nil)
		change(m)
		m.todo = tasksFor("a")
		n, err := w.once(t.Context(), t.Context(), queue.Anyone, false, &limit.Grant{Rows: 10}, nil)
		if n != 1 || err != nil || m.givenBack != 1 || w.stats.Lost.Load() != 1 {
			t.Errorf("%s: %d tasks, %v; %d leases were given back, %d lost", name, n, err, m.givenBack, w.stats.Lost.Load())
		}
	}
}

// A backfill waits while one of a pipeline of a higher priority is embedded by the same model; live changes do not.
func TestRun_PrioritiesOrderBackfills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.Loops = 1 })
		m.source = map[string]string{"backfill": textA, "live": textB}
		m.todo = tasksFor("backfill", "live")
		m.todo[1].Lane = pipeline.Normal
		end := w.o.Service.Begin(t.Context(), int(pipeline.Urgent))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx, t.Context()) }()
		stored := func(want ...string) {
			t.Helper()
			<-time.After(time.Second)
			synctest.Wait()
			m.mu.Lock()
			defer m.mu.Unlock()
			if got := slices.Sorted(maps.Keys(m.stored)); !slices.Equal(got, want) {
				t.Errorf("%q are stored, want %q", got, want)
			}
		}
		stored("live")
		end()
		stored("backfill", "live")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
