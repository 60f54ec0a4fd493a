package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// healthy is what the catalogue says of a table with which all is well.
func healthy(change func(c *catalogueRow)) catalogueRow {
	c := catalogueRow{
		PipelineID: 7, Status: string(pipeline.Active), Known: []byte(`{"a":1}`), Current: []byte(`{"a":1}`),
		TableExists: true, PublicationExists: true, SamePublication: true, Published: true, Version: "1",
	}
	change(&c)
	return c
}

func TestCatalogueRow_IsStoredWhenTheStreamHasSomethingToSay(t *testing.T) {
	t.Parallel()
	const missing, unpublished = string(pipeline.Missing), string(pipeline.Unpublished)
	for name, c := range map[string]struct {
		change func(c *catalogueRow)
		lack   pipeline.Status
		stored bool
	}{
		"all as it was":  {func(*catalogueRow) {}, "", true},
		"it was altered": {func(c *catalogueRow) { c.Current = []byte(`{"a":2}`) }, "", false},
		"it was dropped": {
			func(c *catalogueRow) { c.TableExists = false },
			pipeline.Missing, false,
		},
		"dropped, as is known": {
			func(c *catalogueRow) { c.TableExists, c.Status = false, missing },
			pipeline.Missing, true,
		},
		"no longer published": {
			func(c *catalogueRow) { c.Published = false },
			pipeline.Unpublished, false,
		},
		"unpublished, as is known": {
			func(c *catalogueRow) { c.Published, c.Status = false, unpublished },
			pipeline.Unpublished, true,
		},
		"published again":         {func(c *catalogueRow) { c.Status = unpublished }, "", false},
		"there again":             {func(c *catalogueRow) { c.Status = missing }, "", false},
		"what others found amiss": {func(c *catalogueRow) { c.Status = "misconfigured" }, "", true},
		"dropped, not unpublished": {
			func(c *catalogueRow) { c.TableExists, c.Published = false, false },
			pipeline.Missing, false,
		},
		"dropped, was misconfigured": {
			func(c *catalogueRow) { c.TableExists, c.Status = false, "misconfigured" },
			pipeline.Missing, false,
		},
	} {
		row := healthy(c.change)
		if lack, detail := row.lack(); lack != c.lack || (detail == "") != (lack == "") || row.asStored() != c.stored {
			t.Errorf("%s: lack %q (%s), as stored %t; want %q, %t", name, lack, detail, row.asStored(), c.lack, c.stored)
		}
	}
}

func TestCompare_FindsWhatIsNotAsAtTheLastLook(t *testing.T) {
	t.Parallel()
	quiet := func(catalogueRow) (bool, error) { return false, nil }
	w := &watcher{}
	look := func(note func(catalogueRow) (bool, error), rows ...catalogueRow) (bool, error) {
		return w.compare(rows, note)
	}
	same := healthy(func(*catalogueRow) {})
	for i, c := range []struct {
		rows    []catalogueRow
		note    func(catalogueRow) (bool, error)
		changed bool
	}{
		{[]catalogueRow{same}, quiet, true}, // the first look of a session
		{[]catalogueRow{same}, quiet, false},
		{[]catalogueRow{same}, func(catalogueRow) (bool, error) { return true, nil }, true},
		{[]catalogueRow{healthy(func(c *catalogueRow) { c.ScanAsked = true })}, quiet, true},
		{[]catalogueRow{healthy(func(c *catalogueRow) { c.Version = "2" })}, quiet, true},
		{[]catalogueRow{healthy(func(c *catalogueRow) { c.Version = "2" })}, quiet, false},
		{nil, quiet, true},
	} {
		if changed, err := look(c.note, c.rows...); changed != c.changed || err != nil {
			t.Errorf("look %d: changed %t, %v; want %t", i, changed, err, c.changed)
		}
	}
	for name, change := range map[string]func(c *catalogueRow){
		"no publication":      func(c *catalogueRow) { c.PublicationExists = false },
		"another publication": func(c *catalogueRow) { c.SamePublication = false },
	} {
		var gap *gapError
		if _, err := look(quiet, healthy(change)); !errors.As(err, &gap) {
			t.Errorf("%s: %v, want a gap", name, err)
		}
	}
	awaited := healthy(func(c *catalogueRow) { c.StandbyNames = "*" })
	if _, err := look(quiet, awaited); !errors.Is(err, errAwaited) {
		t.Errorf("commits could wait for the stream: %v", err)
	}
	cause := errors.New("no")
	if _, err := look(func(catalogueRow) (bool, error) { return true, cause }, same); !errors.Is(err, cause) {
		t.Errorf("got %v, want what could not be noted", err)
	}
}

// A lock on what is ours of one pipeline, as of an operator's open transaction, keeps nothing from the others; soon it
// is tried again.
func TestP5_ALockedPipelineKeepsNoOtherFromBeingNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{s: New(Options{Log: slog.New(slog.DiscardHandler)}), told: make(chan struct{}, 1)}
		locked, other := healthy(func(*catalogueRow) {}), healthy(func(c *catalogueRow) { c.PipelineID = 8 })
		all := []catalogueRow{locked, other}
		held := true
		look := func() (changed bool, noted []int32) {
			changed, err := w.compare(all, func(c catalogueRow) (bool, error) {
				if c.PipelineID == locked.PipelineID && held {
					return false, fmt.Errorf("note: %w", &pgconn.PgError{Severity: "ERROR", Code: pgerrcode.LockNotAvailable})
				}
				noted = append(noted, c.PipelineID)
				return true, nil
			})
			if err != nil {
				t.Error(err)
			}
			return changed, noted
		}
		for range 20 {
			if changed, noted := look(); !changed || !slices.Equal(noted, []int32{8}) {
				t.Errorf("while it is locked: changed %t, noted %v", changed, noted)
			}
			began := time.Now()
			if w.rest(t.Context()); time.Since(began) > 2*time.Second {
				t.Errorf("it is tried again after %s", time.Since(began))
			}
		}
		held = false
		if changed, noted := look(); !changed || len(noted) != 2 {
			t.Errorf("changed %t, noted %v", changed, noted)
		}
		began := time.Now()
		if w.rest(t.Context()); time.Since(began) < 5*time.Second {
			t.Errorf("nothing is late, and it looks again after %s", time.Since(began))
		}
	})
}

func TestHear_TakesAPositionAndNothingElse(t *testing.T) {
	t.Parallel()
	ses := &session{s: stream(), buffer: newBuffer(), told: make(chan struct{}, 1)}
	ses.buffer.commit(100, false)
	ses.buffer.take()
	ses.heed("anybody may say anything")
	if len(ses.told) == 0 || ses.buffer.take().hurry {
		t.Error("what is no position makes one be saved, or nobody look")
	}
	ses.heed("0/10")
	if !ses.buffer.take().hurry {
		t.Error("a position that is reached is not saved at once")
	}
}

// lookouts answers looks, and counts them.
type lookouts struct {
	answers func(n int) error
	looked  int
}

func (l *lookouts) look(context.Context) error {
	l.looked++
	return l.answers(l.looked)
}

func (l *lookouts) rest(ctx context.Context) { wait(ctx, time.Second) }

// A look that fails ends the session only when it fails time after time.
func TestWatch_BearsLooksThatFailNowAndThen(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		answers func(n int) error
		looked  int
		failing int
		want    error
	}{
		"always":            {func(int) error { return down }, 10, 10, down},
		"all but the tenth": {func(n int) error { return map[bool]error{true: nil, false: down}[n == 10] }, 20, 19, down},
		"a gap": {func(n int) error {
			return map[bool]error{true: &gapError{"gone"}, false: nil}[n == 3]
		}, 3, 0, &gapError{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{Log: slog.New(slog.DiscardHandler)})
			l := &lookouts{answers: c.answers}
			err := (&session{s: s}).keepLooking(t.Context(), l)
			_, isGap := errors.AsType[*gapError](err)
			_, wantGap := errors.AsType[*gapError](c.want)
			if l.looked != c.looked || isGap != wantGap || !isGap && !errors.Is(err, c.want) {
				t.Errorf("%s: %v after %d looks", name, err, l.looked)
			}
			if s.stats.Heartbeats.Load() != int64(c.failing) {
				t.Errorf("%s: %d failures are counted", name, s.stats.Heartbeats.Load())
			}
		})
	}
}

func TestWatch_LooksUntilItIsToldToStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lookouts{answers: func(int) error { return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := (&session{s: stream()}).keepLooking(ctx, l)
		if !errors.Is(err, context.DeadlineExceeded) || l.looked < 10 {
			t.Errorf("%v after %d looks, want that it looks until it is told to stop", err, l.looked)
		}
	})
}
