package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	values := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 0.75: 3.25, 1: 4} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v of %v: %v, want %v", q, values, got, want)
		}
	}
	if !slices.Equal(values, []float64{4, 1, 3, 2}) {
		t.Error("quantile changed its input")
	}
}

// TestRatiosWithinRounds checks that a round in which the machine was slow does not change a ratio.
func TestRatiosWithinRounds(t *testing.T) {
	t.Parallel()
	f := newFigures("Things")
	for _, speed := range []float64{100, 10, 100} {
		f.add("base", "things/s", speed)
		f.add("ours", "things/s", speed/2)
		f.add("p50", "ms", 1/speed)
		f.note("ours", "us/thing", 7)
	}
	p := &place{}
	p.show(newFigures("Nothing"))
	p.show(f, "base")
	if len(p.sections) != 1 {
		t.Fatalf("%d tables: one without lines is none", len(p.sections))
	}
	s := p.sections[0]
	if got := s.Rows[1].To["base"]; got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
	if len(s.Rows[0].To) > 0 || len(s.Rows[2].To) > 0 {
		t.Error("a ratio to itself, or of two units")
	}
	var out bytes.Buffer
	(&result{Sections: []section{s}}).print(&out)
	for _, want := range []string{"\nThings\n", "ours  50.0 things/s", "0.50 of base", "us/thing 7.00", "[5.00 to 50.0]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--smoke", "--only", "rows, queries", "--rates", "30,300"}, io.Discard)
	if err != nil || !o.smoke || !slices.Equal(o.only, []string{"rows", "queries"}) || !slices.Equal(o.rates, []int{30, 300}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"--only", "nothing"}, {"more"}, {"--rounds", "-1"}, {"--rates", "300,often"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	p := &place{summary: readTexts(filepath.Join("..", "examples", "debian-packages.csv"))}
	texts := p.mixed(1000)
	seen := map[string]bool{}
	var words int
	for _, text := range texts {
		seen[text] = true
		words += len(strings.Fields(text))
	}
	if len(seen) != len(texts) {
		t.Errorf("%d different texts of %d: those that are known already cost nothing", len(seen), len(texts))
	}
	if mean := words / len(texts); mean < 20 || mean > 80 {
		t.Errorf("%d words on average", mean)
	}
	if a, b := p.text(1, 0), p.text(1, 1); a == b {
		t.Errorf("two versions of a text are the same: %q", a)
	}
}

func TestPlainEnviron(t *testing.T) {
	t.Parallel()
	got := plainEnviron([]string{"PATH=/bin", "PGHOST=elsewhere", "EMBEDSIDECAR_SLOT=s", "EMBEDSIDECAR_MODEL_DIR=/m"})
	if want := []string{"PATH=/bin", "EMBEDSIDECAR_MODEL_DIR=/m"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTry: a failure in a part becomes its error, with what was being done; other panics do not.
func TestTry(t *testing.T) {
	t.Parallel()
	err := try(func() {
		defer during("count to %d", 3)
		must(3, error(nil))
		check(io.ErrUnexpectedEOF)
		t.Error("it went on")
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "count to 3: ") {
		t.Errorf("%v", err)
	}
	if err := try(func() { defer during("nothing") }); err != nil {
		t.Error(err)
	}
	defer func() {
		if recover() != "a bug" {
			t.Error("a bug was taken for a failure")
		}
	}()
	_ = try(func() {
		defer during("count")
		panic("a bug")
	})
}
