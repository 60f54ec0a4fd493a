package setup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestInit_ServersThatAreNotReady: a server with default settings, and one without free slots. Nothing is left half
// done: the same init succeeds once the server is ready.
func TestInit_ServersThatAreNotReady(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := testenv.Start(ctx, testenv.Options{Config: map[string]string{
		"wal_level":             "replica",
		"max_replication_slots": "1",
		"max_wal_senders":       "1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	b := baseOn(t, testenv.DB(t, testenv.On(server), testenv.Empty()), plainDocs)
	o := b.options(b.SlotName(), docs())
	before := b.catalogue()
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "wal_level: it is replica, want logical",
		"ALTER SYSTEM SET wal_level", "restart")
	if len(find(b.check(o), check.Wrong, "want logical")) != 1 {
		t.Errorf("check: %+v", b.check(o))
	}
	if after := b.catalogue(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("a refused init left things behind: %q, before %q", after, before)
	}

	if err := server.Configure(map[string]string{"wal_level": "logical"}); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx, testenv.Fast); err != nil {
		t.Fatal(err)
	}
	b.Pool.Reset()
	b.pool.Reset()
	b.super.Reset()
	b.MustExec(`SELECT pg_create_physical_replication_slot('taken')`)
	if len(find(b.check(o), check.Wrong, "all 1 are in use")) != 1 {
		t.Errorf("check: %+v", find(b.check(o), check.Wrong, ""))
	}
	_, err = setup.Init(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "all replication slots are in use") {
		t.Fatalf("got %v, want that all slots are in use", err)
	}
	if hint := strings.Join(problem.Hints(err), " "); !strings.Contains(hint, "max_replication_slots") {
		t.Errorf("hint %q lacks the setting", hint)
	}
	b.MustExec(`SELECT pg_drop_replication_slot('taken')`)
	free := func() {
		t.Helper()
		testenv.Eventually(t, time.Minute, func() (bool, string) {
			n := testenv.Value[int](b.Database, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'`)
			return n == 0, fmt.Sprintf("%d walsenders", n)
		})
	}
	free()
	b.init(o)
	got, err := resolve.Load(t.Context(), b.pool, o.Slot)
	if err != nil || len(got) != 1 || got[0].Status != pipeline.Active {
		t.Errorf("after the slot was freed: %+v, %v", got, err)
	}

	// An init that makes no slot needs no replication connection.
	free()
	other, err := pgconn.Connect(ctx, b.URL(testenv.Superuser)+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(ctx) }()
	b.MustExec(`CREATE TABLE late (id bigint PRIMARY KEY, title text, body text, embedding vector(3))`)
	late := docs()
	late.Name, late.Table = "late", "late"
	b.init(b.options(o.Slot, docs(), late))
	if got, err = resolve.Load(t.Context(), b.pool, o.Slot); err != nil || len(got) != 2 {
		t.Errorf("while no walsender is free: %+v, %v", got, err)
	}
	b.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET system_id = '1'`)
	adopt := b.options(o.Slot, docs(), late)
	adopt.Adopt = true
	if _, err := setup.Init(ctx, adopt); problem.Code(err) != code.Full {
		t.Errorf("a new slot while no walsender is free: %v", err)
	}
}
