package queue_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Who waits for the first of two commits of a row waits for the task that stands for both.
func TestP10_TheFirstOfTwoMergedCommitsIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := func() string {
		return testenv.Value[string](f.db, `SELECT first_lsn::text || ' ' || last_lsn FROM embedsidecar.task`)
	}
	if _, err := f.enqueue(t.Context(), change("1", 0x10), change("1", 0x20), change("1", 0x30)); err != nil {
		t.Fatal(err)
	}
	if got := first(); got != "0/10 0/30" {
		t.Errorf("merged in one batch: LSNs %s, want 0/10 0/30", got)
	}
	tasks := f.lease(t, 1)
	if _, err := f.enqueue(t.Context(), change("1", 0x40), change("1", 0x50)); err != nil {
		t.Fatal(err)
	}
	if got := first(); got != "0/10 0/50" {
		t.Errorf("changed under a lease: LSNs %s, want 0/10 0/50", got)
	}
	f.finish(t, tasks, queue.Done)
	if got := first(); got != "0/40 0/50" {
		t.Errorf("after the look at the first three: LSNs %s, want 0/40 0/50", got)
	}
	f.finish(t, f.lease(t, 1), queue.Fail)
	if _, err := f.enqueue(t.Context(), change("1", 0x60)); err != nil {
		t.Fatal(err)
	}
	if got := first(); got != "0/40 0/60" {
		t.Errorf("a dead letter that changed: LSNs %s, want 0/40 0/60: it was never satisfied", got)
	}
}

// What a scan finds is older than all, whatever waits for the row already.
func TestP10_WhatAScanFoundStaysOlderThanAll(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, f *fixture){
		"waiting":  func(*testing.T, *fixture) {},
		"leased":   func(t *testing.T, f *fixture) { t.Helper(); f.lease(t, 1) },
		"retrying": func(t *testing.T, f *fixture) { t.Helper(); f.finish(t, f.lease(t, 1), queue.Later) },
		"failed":   func(t *testing.T, f *fixture) { t.Helper(); f.finish(t, f.lease(t, 1), queue.Fail) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if _, err := f.enqueue(t.Context(), change("1", 0x10)); err != nil {
				t.Fatal(err)
			}
			before(t, f)
			if err := queue.Add(t.Context(), f.db.Pool, f.id, 0, []string{"1"}); err != nil {
				t.Fatal(err)
			}
			if _, err := f.enqueue(t.Context(), change("1", 0x20)); err != nil {
				t.Fatal(err)
			}
			if got := testenv.Value[string](f.db, `SELECT first_lsn::text FROM embedsidecar.task`); got != "0/0" {
				t.Errorf("first_lsn %s, want 0/0", got)
			}
		})
	}
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 0x10)); err != nil {
		t.Fatal(err)
	}
	tasks := f.lease(t, 1)
	if err := queue.Add(t.Context(), f.db.Pool, f.id, 0, []string{"1"}); err != nil {
		t.Fatal(err)
	}
	if done := f.finish(t, tasks, queue.Done); done.Reopened != 1 {
		t.Errorf("%+v, want the task opened again: the worker looked before the scan", done)
	}
	if got := testenv.Value[string](f.db, `SELECT first_lsn::text FROM embedsidecar.task`); got != "0/0" {
		t.Errorf("opened again with first_lsn %s, want 0/0", got)
	}
}

// TestP5_NoKeyThatIsTooLongIsAdded: it may not fit into an index, and then nothing of the statement would.
func TestP5_NoKeyThatIsTooLongIsAdded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := []string{strings.Repeat("x", pipeline.MaxKey+1), strings.Repeat("y", pipeline.MaxKey)}
	if err := queue.Add(t.Context(), f.db.Pool, f.id, 0, keys); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Values[string](f.db, `SELECT row_key FROM embedsidecar.task`); !slices.Equal(got, keys[1:]) {
		t.Errorf("%d tasks, want that of the key of %d bytes", len(got), pipeline.MaxKey)
	}
}
