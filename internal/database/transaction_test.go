package database_test

import (
	"context"
	"errors"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

func TestUntilUnlocked_GivesWayAndTriesAgain(t *testing.T) {
	t.Parallel()
	pool := connect(t, newDB(t))
	ctx := t.Context()
	if _, err := pool.Exec(ctx, "CREATE TABLE public.locked (n int)"); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "LOCK TABLE public.locked IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = database.UntilUnlocked(ctx, func() error {
		if tries++; tries == 3 {
			if err := tx.Rollback(ctx); err != nil {
				return err
			}
		}
		_, err := pool.Exec(ctx, "SELECT FROM public.locked")
		if tries < 3 && !database.LockedOut(err) {
			t.Errorf("while the table is locked: %v", err)
		}
		return err
	})
	if err != nil || tries != 3 {
		t.Errorf("%v after %d tries, want none after 3", err, tries)
	}
	wrong := errors.New("something else")
	tries = 0
	if err := database.UntilUnlocked(ctx, func() error { tries++; return wrong }); !errors.Is(err, wrong) || tries != 1 {
		t.Errorf("%v after %d tries, want it at once", err, tries)
	}
	ended, cancel := context.WithCancel(ctx)
	if err := database.UntilUnlocked(ended, func() error { cancel(); return database.ErrLocked }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("asked to stop: %v", err)
	}
}

// A retry sees that an object that vanished during a statement is gone.
func TestUntilUnlocked_BeginsAnewWhereSomethingVanished(t *testing.T) {
	t.Parallel()
	pool := connect(t, newDB(t))
	tries := 0
	vanishing := func(times int) error {
		tries = 0
		return database.UntilUnlocked(t.Context(), func() error {
			if tries++; tries > times {
				return nil
			}
			_, err := pool.Exec(t.Context(), `DO $$ BEGIN
				RAISE EXCEPTION 'cache lookup failed for attribute 4 of relation 16400' USING ERRCODE = 'XX000'; END $$`)
			return err
		})
	}
	if err := vanishing(2); err != nil || tries != 3 {
		t.Errorf("%v after %d tries, want none after 3", err, tries)
	}
	if err := vanishing(1000); !database.Vanished(err) || tries > 10 {
		t.Errorf("%v after %d tries, want the server's word after a few", err, tries)
	}
}

// Read-only commands report a lock soon, however many objects are locked.
func TestP10_WhoLooksWaitsBrieflyForLocks(t *testing.T) {
	t.Parallel()
	tries := 0
	ctx := database.Briefly(t.Context())
	const things = 20
	for range things {
		if err := database.UntilUnlocked(ctx, func() error { tries++; return database.ErrLocked }); !database.LockedOut(err) {
			t.Fatal(err)
		}
	}
	if tries < things+2 || tries > things+5 {
		t.Errorf("%d tries for %d things, want a few more than things", tries, things)
	}
}
