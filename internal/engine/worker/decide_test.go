package worker

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// known is a row as a look finds it whose vector is that of its Text: every test below changes something of it.
func known(p *pipeline.Pipeline) rows.Row {
	text := "a text"
	hash := pipeline.TextHash(text)
	vector := pipeline.VectorHash([]float32{1, 2, 3})
	r := rows.Row{
		Key: "1", Found: true, Actual: "1", Keep: true, Text: text, Bytes: len(text), Hashed: true,
		Source: pipeline.SourceHash("source"), TextHash: hash,
		Ledger: true, LedgerSource: []byte("source"), LedgerText: hash[:], LedgerVector: vector[:],
		LedgerGeneration: p.Generation,
		Stored:           true, StoredHash: vector[:], StoredGeneration: p.Generation,
	}
	if !p.InSource() {
		r.StoredHash = hash[:]
	}
	return r
}

func unknown(r *rows.Row) {
	r.Ledger, r.LedgerSource, r.LedgerText, r.LedgerVector = false, nil, nil, nil
}

func TestDecide_SaysWhatEachRowNeeds(t *testing.T) {
	t.Parallel()
	column := &pipeline.Pipeline{Spec: pipeline.Spec{IntoColumn: "embedding"}, Generation: 2}
	table := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "docs_embedding"}, Generation: 2}
	other := sha256.Sum256([]byte("another text"))
	for _, c := range []struct {
		name          string
		change        func(r *rows.Row)
		column, table action
	}{
		{"all as it was", func(*rows.Row) {}, nothing, nothing},
		{"the row is gone", func(r *rows.Row) { *r = rows.Row{Key: "1"} }, gone, gone},
		{"its key is spelled otherwise", func(r *rows.Row) { r.Actual = "01" }, alias, alias},
		{"never looked at", func(r *rows.Row) { unknown(r); r.Stored = false }, vectorIn, vectorIn},
		{"never looked at, and somebody's vector is there", unknown, vectorIn, vectorIn},
		{"another text", func(r *rows.Row) { r.Source, r.TextHash = pipeline.SourceHash("new"), other }, vectorIn, vectorIn},
		{"another column, the same text", func(r *rows.Row) { r.Source = pipeline.SourceHash("new") }, relabel, relabel},
		{"another text of the same columns", func(r *rows.Row) { r.TextHash = other }, vectorIn, vectorIn},
		{
			"an older generation, the same text", func(r *rows.Row) { r.LedgerGeneration, r.StoredGeneration = 1, 1 }, relabel,
			relabel,
		},
		{"only the destination's generation is older", func(r *rows.Row) { r.StoredGeneration = 1 }, nothing, relabel},
		{"the vector was taken away", func(r *rows.Row) { r.Stored, r.StoredHash = false, nil }, vectorIn, vectorIn},
		{"somebody wrote another vector", func(r *rows.Row) { r.StoredHash = make([]byte, 32) }, vectorIn, vectorIn},
		{"the filter leaves it out", func(r *rows.Row) { r.Keep = false }, empty, empty},
		{"its text is blank now", func(r *rows.Row) { r.Text, r.Bytes = " \n", 0 }, empty, empty},
		{"left out, as it was", func(r *rows.Row) {
			r.Keep, r.Stored, r.StoredHash, r.LedgerText, r.LedgerVector = false, false, nil, nil, []byte("none")
		}, nothing, nothing},
		{"left out, and somebody put a vector there", func(r *rows.Row) {
			r.Keep, r.LedgerText, r.LedgerVector = false, nil, []byte("none")
		}, empty, empty},
		{"another text that counts as the same", func(r *rows.Row) {
			r.Source, r.TextHash, r.Norm = pipeline.SourceHash("new"), other, []byte("norm")
			r.LedgerNorm = r.NormOf(r.LedgerText)
		}, relabel, relabel},
		{"asked for anew", func(r *rows.Row) { r.LedgerText, r.LedgerVector = nil, nil }, vectorIn, vectorIn},
		{"a large text that was hashed by the server", func(r *rows.Row) { r.Text = "" }, nothing, nothing},
		{"a large text of which there is no hash", func(r *rows.Row) { r.Text, r.Hashed = "", false }, nothing, nothing},
		{"a large text of which there is no hash, changed", func(r *rows.Row) {
			r.Text, r.Hashed, r.Source = "", false, pipeline.SourceHash("new")
		}, vectorIn, vectorIn},
	} {
		for p, want := range map[*pipeline.Pipeline]action{column: c.column, table: c.table} {
			r := known(p)
			c.change(&r)
			items := []item{{row: r}}
			New(Options{Pipeline: p}).decide(items)
			if got := items[0].action; got != want {
				t.Errorf("%s (column %t): action %d, want %d", c.name, p.InSource(), got, want)
			}
		}
	}
}

// With joins, the text of an adopted vector is not known for sure if a change that is as old comes through the stream.
func TestP1_AnAdoptedVectorIsDoubtful(t *testing.T) {
	t.Parallel()
	now, joins := time.Now(), pipeline.Joins{{As: "tags"}}
	for name, c := range map[string]struct {
		joins   pipeline.Joins
		adopted time.Time
		from    pglogrepl.LSN
		age     time.Duration
		want    action
	}{
		"a change":            {joins, now, 1, time.Minute, vectorIn},
		"a later change":      {joins, now, 1, -2 * time.Hour, nothing},
		"a comparison":        {joins, now, 0, time.Minute, nothing},
		"it was written here": {joins, time.Time{}, 1, time.Minute, nothing},
		"no joins":            {nil, now, 1, time.Minute, nothing},
	} {
		p := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "docs_embedding", Joins: c.joins}, Generation: 2}
		items := []item{{row: known(p), task: queue.Task{FirstLSN: c.from, CommittedAt: now.Add(-c.age)}}}
		items[0].row.Adopted = c.adopted
		New(Options{Pipeline: p}).decide(items)
		if got := items[0].action; got != c.want || got == vectorIn && !items[0].row.Anew() {
			t.Errorf("%s: action %d, want %d", name, got, c.want)
		}
	}
}

// A doubtful vector is not given to another row of the same text either, from which it would come back by the cache.
func TestP1_ADoubtfulVectorIsGivenToNoOtherRow(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		if p.Chunked {
			continue
		}
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w, m, _ := inMemory(t, p, nil)
			m.source = map[string]string{"a": textA}
			process(t, w, m, "a")
			p.Joins = pipeline.Joins{{As: "tags"}}
			adopted := m.ledger["a"] // as if its text had been read after a change of a joined row
			other := vectorOf(textB)
			hash := p.Stored.Hash(other)
			adopted.Adopted, adopted.LedgerVector = time.Now(), hash[:]
			m.ledger["a"] = adopted
			m.stored["a"] = kept{vector: p.Stored.Canonical(other), hash: m.stored["a"].hash, generation: p.Generation}
			w, n, e := inMemory(t, p, nil)
			n.source, n.stored, n.ledger = map[string]string{"a": textA, "b": textA}, m.stored, m.ledger
			tasks := tasksFor("b", "a")
			for i := range tasks {
				tasks[i].FirstLSN, tasks[i].CommittedAt = 1, time.Now().Add(-time.Minute)
			}
			if err := w.process(t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
			want := p.Stored.Canonical(vectorOf(textA))
			for key, k := range n.stored {
				if !slices.Equal(k.vector, want) {
					t.Errorf("%s has the vector %v, want %v", key, k.vector, want)
				}
			}
			if len(n.stored) != 2 || e.calls() != 1 {
				t.Errorf("%d vectors, %d texts paid for", len(n.stored), e.calls())
			}
		})
	}
}

func TestDecide_LeavesBrokenRowsAndCountsMendedOnes(t *testing.T) {
	t.Parallel()
	w := New(Options{Pipeline: &pipeline.Pipeline{Spec: pipeline.Spec{IntoColumn: "embedding"}}})
	items := []item{{action: broken, row: rows.Row{Broken: true}}}
	w.decide(items)
	if items[0].action != broken || w.stats.Sanitised.Load() != 1 {
		t.Errorf("action %d, %d texts mended", items[0].action, w.stats.Sanitised.Load())
	}
}

// Only the row's own fault costs an attempt, and only that makes a dead letter.
func TestFailure_OnlyTheRowsOwnFaultCounts(t *testing.T) {
	t.Parallel()
	w := New(Options{
		Pipeline: &pipeline.Pipeline{},
		Work:     Work{Retry: Retry{MaxAttempts: 3, Initial: time.Second, Max: time.Minute}},
	})
	fail := func(attempt int16, err error) queue.Outcome {
		return w.failure(&item{task: queue.Task{Attempt: attempt}, err: err})
	}
	data := &embed.TextError{Class: embed.Data, Code: "too_long", Message: "why"}
	for attempt, want := range []queue.Action{queue.Later, queue.Later, queue.Fail} {
		o := fail(int16(attempt), data)
		if o.Action != want || int(o.Attempt) != attempt+1 || o.Code != "too_long" || o.Message != "why" {
			t.Errorf("after %d attempts: %+v, want action %v", attempt, o, want)
		}
	}
	transient := fail(2, &embed.TextError{Class: embed.Transient, Code: "busy", RetryAfter: time.Hour})
	if transient.Action != queue.Later || transient.Attempt != 2 || transient.Delay != time.Hour {
		t.Errorf("an embedder that asks for an hour: %+v", transient)
	}
	if o := fail(2, errors.New("who knows")); o.Action != queue.Later && o.Class != string(embed.Data) {
		t.Errorf("an error of no class: %+v", o)
	}
}

func TestBackoff_DoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	w := New(Options{
		Pipeline: &pipeline.Pipeline{},
		Work:     Work{Retry: Retry{MaxAttempts: 3, Initial: time.Second, Max: time.Minute}},
	})
	for attempt, most := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second,
		5: 16 * time.Second, 7: time.Minute, 1000: time.Minute,
	} {
		for range 100 {
			if d := w.backoff(attempt); d < most/2 || d > most {
				t.Fatalf("attempt %d: %s, want %s to %s", attempt, d, most/2, most)
			}
		}
	}
}

func TestLockedDelay_IsShortAtFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for age, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, time.Second: 100 * time.Millisecond, time.Hour: 5 * time.Second,
		-time.Hour: 50 * time.Millisecond,
	} {
		if got := lockedDelay(queue.Task{EnqueuedAt: now.Add(-age)}, now); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}

// item1 is an item of some task.
func item1(id int64, a action, stored bool) item {
	return item{task: queue.Task{TaskID: id, RowKey: string(rune('a' + id))}, action: a, row: rows.Row{Stored: stored}}
}

// A write-back to a column holds few of the user's rows; those it does not touch cost nobody anything.
func TestPortion_CountsRowsThatAreHeld(t *testing.T) {
	t.Parallel()
	column := New(Options{
		Pipeline: &pipeline.Pipeline{Spec: pipeline.Spec{IntoColumn: "embedding"}}, Work: Work{HeldRows: 2},
	})
	items := []item{
		item1(1, vectorIn, false), item1(2, nothing, true), item1(3, empty, true), item1(4, empty, false),
		item1(5, gone, true), item1(6, vectorIn, true),
	}
	if got := column.portion(items); got != 5 {
		t.Errorf("a column's portion is %d items, want 5: the sixth is the third that is held", got)
	}
	table := New(Options{Pipeline: &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}}, Work: Work{HeldRows: 2}})
	if got := table.portion(items); got != len(items) {
		t.Errorf("a table's portion is %d items", got)
	}
}

func TestJudge_WritesWhatIsHeldAndPassed(t *testing.T) {
	t.Parallel()
	w := New(Options{Pipeline: &pipeline.Pipeline{Spec: pipeline.Spec{IntoColumn: "embedding"}}})
	items := []item{
		item1(1, vectorIn, false), // locked by somebody
		item1(2, vectorIn, false), // did not pass the fence
		item1(3, vectorIn, false),
		item1(4, nothing, true), // nothing is written, so nothing is to be passed
		{task: queue.Task{TaskID: 5, RowKey: "e"}, action: broken, err: &embed.TextError{Class: embed.Data, Code: "bad"}},
		item1(6, empty, false), // no vector is there: its row is not held
	}
	items[2].paid = true
	locked := &rows.Locks{Sources: map[string]pipeline.SourceHash{items[1].task.RowKey: {1}, items[2].task.RowKey: {1}}}
	passed := map[string]bool{items[2].task.RowKey: true, items[5].task.RowKey: true}
	mine, outcomes := w.judge(items, locked, passed)
	if len(mine) != 3 || mine[0].task.TaskID != 3 || mine[1].task.TaskID != 4 || mine[2].task.TaskID != 6 {
		t.Errorf("written are %+v, want 3, 4 and 6", mine)
	}
	words := []string{"locked", "overtaken", "embedded", "unchanged", "retried", "emptied"}
	for i, o := range outcomes {
		if o.What != words[i] || o.Task.TaskID != items[i].task.TaskID {
			t.Errorf("item %d ends as %q, want %q", i+1, o.What, words[i])
		}
	}
	if w.stats.Locked.Load() != 1 || w.stats.Fenced.Load() != 1 {
		t.Errorf("%d locked, %d fenced, want one of each", w.stats.Locked.Load(), w.stats.Fenced.Load())
	}
}

func TestChangeOf_LeavesOutWhatIsThereAlready(t *testing.T) {
	t.Parallel()
	older := item1(4, relabel, true)
	older.row.StoredGeneration = 1
	same := item1(5, relabel, true)
	same.row.StoredGeneration = 2
	nobody := item1(7, gone, false)
	nobody.nobody = true
	c := changeOf([]item{
		item1(1, vectorIn, true), item1(2, empty, true), item1(3, empty, false), older, same, item1(6, gone, true), nobody,
		item1(8, alias, true), item1(9, nothing, true),
	}, 2)
	if len(c.Write) != 1 || len(c.Empty) != 1 || len(c.Remove) != 1 || len(c.Adopt) != 1 ||
		c.Adopt[0] != older.task.RowKey {
		t.Errorf("%d to write, %d to empty, %d to remove, %d to adopt, want one of each", len(c.Write), len(c.Empty),
			len(c.Remove), len(c.Adopt))
	}
}

// TestDecide_WhatAWriterSkips: as long as the row is as he saw it. What is read from the WAL again changes nothing of
// it; what comes later does.
func TestDecide_WhatAWriterSkips(t *testing.T) {
	t.Parallel()
	other := sha256.Sum256([]byte("another text"))
	column := func(text string) pipeline.SourceHash { return pipeline.SourceHash{}.AppendColumn([]byte(text)) }
	before, after := column("a text"), column("another text")
	changed := func(r *rows.Row) { r.Source, r.LedgerSource, r.TextHash = after, before, other }
	skipped := func(r *rows.Row) {
		r.Source, r.LedgerSource, r.TextHash, r.Skipped, r.SkippedAt = after, after, other, other[:], 100
	}
	isNew := func(r *rows.Row) { changed(r); unknown(r); r.Stored = false }
	seen := func(insert bool, columns ...pipeline.SourceHash) pipeline.Seen {
		s := pipeline.NewSeen(insert)
		for _, c := range columns {
			s = s.Append(c)
		}
		return s
	}
	for _, c := range []struct {
		name   string
		change func(r *rows.Row)
		seen   pipeline.Seen
		lsn    pglogrepl.LSN
		want   action
	}{
		{"an update", changed, seen(false, after), 100, skip},
		{"a text that did not change", func(r *rows.Row) {
			r.Source, r.LedgerSource = after, before
		}, seen(false, after), 100, relabel},
		{"somebody has changed the row since", changed, seen(false, column("older")), 100, vectorIn},
		{"nobody says so", changed, nil, 100, vectorIn},
		{"of other columns", changed, seen(false, after, after), 100, vectorIn},
		{"a column that the WAL leaves out", func(r *rows.Row) {
			r.Source, r.LedgerSource, r.TextHash = before, before, other
		}, seen(false, nil), 100, skip},
		{"one that has changed since", changed, seen(false, nil), 100, vectorIn},
		{"a new row", isNew, seen(true, after), 100, skip},
		{"one that never had a vector", isNew, seen(false, after), 100, vectorIn},
		{"the vector was taken away", func(r *rows.Row) {
			changed(r)
			r.Stored, r.StoredHash = false, nil
		}, seen(false, after), 100, vectorIn},
		{"a text that is gone", func(r *rows.Row) { changed(r); r.Text, r.Bytes = "", 0 }, seen(false, after), 100, empty},
		{"a row that is gone", func(r *rows.Row) { *r = rows.Row{Key: "1"} }, seen(false, after), 100, gone},
		{"again", skipped, seen(false, after), 100, nothing},
		{"again, with one before that was embedded", skipped, nil, 100, nothing},
		{"a later change", skipped, nil, 101, vectorIn},
		{"a new row, later", func(r *rows.Row) {
			skipped(r)
			r.LedgerText, r.LedgerVector, r.Stored, r.StoredHash = nil, rows.NoVector[:], false, nil
		}, nil, 101, vectorIn},
		{"another text since", func(r *rows.Row) { skipped(r); r.Source = before }, nil, 100, vectorIn},
		{"of an older generation", func(r *rows.Row) { skipped(r); r.LedgerGeneration = 1 }, nil, 100, vectorIn},
	} {
		for _, p := range []*pipeline.Pipeline{
			{Spec: pipeline.Spec{IntoColumn: "embedding"}, Generation: 2},
			{Spec: pipeline.Spec{IntoTable: "docs_embedding"}, Generation: 2},
		} {
			r := known(p)
			c.change(&r)
			w := New(Options{Pipeline: p})
			items := []item{{task: queue.Task{Seen: c.seen, LastLSN: c.lsn}, row: r}}
			w.decide(items)
			if items[0].action != c.want {
				t.Errorf("%s, in the source: %t: %d, want %d", c.name, p.InSource(), items[0].action, c.want)
			}
		}
	}
}
