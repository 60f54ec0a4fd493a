package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

func steps(t *testing.T, s *Scan, n int) (last step) {
	t.Helper()
	for range n {
		var err error
		if last, err = s.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// A scan asks for a look at what differs, and at nothing else.
func TestP2_AScanFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, _ := inMemory(t, p, nil)
		m.source = map[string]string{"same": textA, "changed": textB, "gone": "third", "unreadable": "fourth"}
		process(t, w, m, "same", "changed", "gone", "unreadable")
		m.source["changed"], m.source["new"] = "other", "new"
		delete(m.source, "gone")
		m.stored["stray"] = kept{hash: []byte("x"), vector: []float32{1}}
		m.refuseRead = func(keys []string) error {
			if slices.Contains(keys, "unreadable") {
				return refused(pgerrcode.DivisionByZero)
			}
			return nil
		}
		s := NewScan(w)
		if got := steps(t, s, 1); got != stepIdle {
			t.Errorf("%s: nothing is asked for, and the step is %d", form, got)
		}
		m.scan = &scanState{Phase: "waiting", Requested: 1}
		if got := steps(t, s, 1); got != stepLater || m.scan.Phase != "waiting" {
			t.Errorf("%s: it does not wait for the stream", form)
		}
		m.scan.Routed = true
		if got := steps(t, s, 1); got != stepLater || m.scan.Phase != "waiting" {
			t.Errorf("%s: it does not wait for open transactions", form)
		}
		m.scan.MayStart = true
		m.backlog = scanAhead
		steps(t, s, 1)
		if got := steps(t, s, 1); got != stepLater || len(m.again) > 0 {
			t.Errorf("%s: it goes on though the queue is full", form)
		}
		m.backlog = 0
		for range 20 {
			if m.scan == nil {
				break
			}
			steps(t, s, 1)
			s.tell(t.Context(), 0)
		}
		slices.Sort(m.again)
		want := "changed gone new stray unreadable"
		if p.InSource() {
			want = "changed gone new unreadable" // a column has no rows of its own
		}
		if got := strings.Join(slices.Compact(m.again), " "); m.scan != nil || got != want {
			t.Errorf("%s: it asks for looks at %s, want %s; over: %t", form, got, want, m.scan == nil)
		}
	}
}

// A scan of some rows is named by values of joined ones. Those may be of a type that the columns do not have any more:
// then every row is compared, and the scan ends.
func TestP1_AScanOfRowsThatNoValueNamesEnds(t *testing.T) {
	t.Parallel()
	w, m, _ := inMemory(t, forms()["table"], nil)
	m.source = map[string]string{"a": textA, "b": textB, "c": "third"}
	process(t, w, m, "a", "b", "c")
	m.source["b"] = "other"
	bad := "bad"
	m.scan = &scanState{Phase: "rows", Requested: 1, Started: 1, Routed: true, MayStart: true, Parts: true, Which: &bad}
	s := NewScan(w)
	for range 10 {
		if m.scan != nil {
			steps(t, s, 1)
		}
	}
	if m.scan != nil || !slices.Equal(m.again, []string{"b"}) {
		t.Errorf("it asks for looks at %q; over: %t", m.again, m.scan == nil)
	}
}

// What a page of the embedding table has found is found again where that page was not saved, and where its tasks may be
// forgotten with the server that made them.
func TestP1_AScanFindsAStrayAgain(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(m *memory){
		"unsaved":   func(m *memory) { m.unsaved = 1 },
		"forgotten": func(*memory) {},
	} {
		w, m, _ := inMemory(t, forms()["table"], nil)
		for i := range rows.PageRows {
			m.stored[fmt.Sprint("stray ", i)] = kept{hash: []byte("x"), vector: []float32{1}}
		}
		m.scan = &scanState{Phase: "orphans", Requested: 1, Started: 1, Routed: true, Lost: true}
		s := NewScan(w)
		forget(m)
		if steps(t, s, 1); name == "forgotten" {
			m.again, m.scan.Life = nil, time.Now()
		}
		for range 5 {
			if m.scan != nil {
				steps(t, s, 1)
			}
		}
		if m.scan != nil || len(m.again) != rows.PageRows {
			t.Errorf("%s: it asks for looks at %d rows, want %d; over: %t", name, len(m.again), rows.PageRows, m.scan == nil)
		}
	}
}

// Verify names what is not as it should be, and mends nothing.
func TestP10_VerifyCountsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		var found []string
		w, m, e := inMemory(t, p, func(o *Options) { o.Found = func(key string, _ bool) { found = append(found, key) } })
		m.source = map[string]string{"good": textA, "stale": textB, "missing": "third", "blank": "x", "other": "fifth"}
		process(t, w, m, "good", "stale", "missing", "blank", "other")
		report, err := w.Verify(t.Context(), 10)
		if err != nil || !report.OK() || report.Covered != 5 || report.Sampled != 5 || len(found) > 0 {
			t.Fatalf("%s: all is well, and the report is %+v, %v", form, report, err)
		}
		m.source["stale"], m.source["blank"] = "changed", " "
		delete(m.stored, "missing")
		m.stored["orphan"] = kept{hash: []byte("x"), vector: []float32{1}}
		m.refuseRead = func(keys []string) error {
			if slices.Contains(keys, "other") {
				return refused(pgerrcode.DivisionByZero)
			}
			return nil
		}
		paid := e.calls()
		report, err = w.Verify(t.Context(), 0)
		orphans := int64(2)
		if p.InSource() {
			orphans = 1 // a vector goes with its row
		}
		if err != nil || report.Rows != 5 || report.Wanted != 3 || report.Covered != 1 || report.Missing != 1 ||
			report.Stale != 1 || report.Orphans != orphans || report.Refused != 1 || e.calls() != paid {
			t.Errorf("%s: %+v, %v, %d calls", form, report, err, e.calls()-paid)
		}
	}
}

// A sample that is embedded again shows a vector that is not the model's.
func TestP10_VerifyDeepFindsAnotherVector(t *testing.T) {
	t.Parallel()
	for form, p := range forms() {
		w, m, _ := inMemory(t, p, nil)
		m.source = map[string]string{"a": textA, "b": textB}
		process(t, w, m, "a", "b")
		k := m.stored["a"]
		wrong := []float32{-1, 5, -7}
		if k.vector = wrong; k.chunks != nil {
			k.chunks[0].Vector = wrong
		}
		m.stored["a"] = k
		report, err := w.Verify(t.Context(), 10)
		if err != nil || report.Sampled != 2 || report.Differ != 1 {
			t.Errorf("%s: %+v, %v", form, report, err)
		}
	}
	w, m, _ := inMemory(t, forms()["chunks"], nil)
	m.source["a"] = textA
	process(t, w, m, "a")
	m.stored["a"].chunks[1].End--
	report, err := w.Verify(t.Context(), 10)
	if err != nil || report.Stale != 1 {
		t.Errorf("a chunk with another place: %+v, %v", report, err)
	}
}

// Large texts go to the embedder a few at a time, and the server is not asked again for all those to come.
func TestP9_VerifyDeepReadsALargeTextTwiceAtMost(t *testing.T) {
	t.Parallel()
	w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.BatchRows = 64 })
	const texts = 24
	for i := range texts {
		m.source[fmt.Sprint(i)] = strings.Repeat(fmt.Sprint(i%10), largeTexts/2)
	}
	process(t, w, m, slices.Collect(maps.Keys(m.source))...)
	read := 0
	m.refuseRead = func(keys []string) error { read += len(keys); return nil }
	report, err := w.Verify(t.Context(), texts)
	if err != nil || report.Covered != texts || report.Sampled != texts || report.Differ != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if most := texts + texts + 2*texts; read > most { // to compare hashes, the first page, and each twice
		t.Errorf("%d rows were read for %d, want at most %d", read, texts, most)
	}
}
