package worker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// A mistake of ours that makes a batch panic ends that batch and nothing else: its rows are tried later, counted as
// lost, so that they are alone soon, and one that does it each time is a dead letter. The log tells where, and nothing
// of a row.
func TestP5_APanicInABatchIsTheBatchsEnd(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keeper := restart.New(logger)
	w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.Log, o.Keeper = logger, keeper })
	m.source = map[string]string{"a": textA, "b": textB}
	m.refuseWrite = func(c *rows.Change) error {
		if len(c.Write) > 0 {
			panic("of " + textA)
		}
		return nil
	}
	once := func(losses int16) queue.Outcome {
		t.Helper()
		m.outcomes, m.todo = nil, tasksFor("a", "b")
		for i := range m.todo {
			m.todo[i].Losses, m.todo[i].Lease.Work = losses, &queue.Work{Began: time.Now()}
		}
		n, err := w.once(t.Context(), t.Context(), queue.Anyone, false, &limit.Grant{Rows: 10}, nil)
		if n != 2 || err != nil {
			t.Fatalf("%d tasks, %v", n, err)
		}
		if len(m.outcomes) != 2 {
			t.Fatalf("%d tasks ended", len(m.outcomes))
		}
		return m.outcomes[0]
	}
	if o := once(0); o.Action != queue.Later || o.Losses != 1 || o.Code != "panic" || o.Attempt != 0 {
		t.Errorf("%+v", o)
	}
	if o := once(queue.DeadAfter - 1); o.Action != queue.Fail || o.Class != "crash" {
		t.Errorf("the last time: %+v", o)
	}
	if keeper.Panics(restart.Worker) != 2 || strings.Contains(log.String(), "first text") {
		t.Errorf("%d panics, or the log has a text", keeper.Panics(restart.Worker))
	}

	m.refuseWrite = nil
	if o := once(0); o.What != "reused" { // what was embedded before the panic is remembered
		t.Errorf("afterwards: %+v", o)
	}
	for _, want := range []string{
		`msg="batch ended"`, "rows=2", "reused=2", "lost=2", `msg="rows given up: they are dead letters now"`, "first_key=a", "code=panic",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	right := &queue.Direct{}
	m.refuseRead = func([]string) error { panic(fmt.Errorf("of %s", textA)) }
	w.Direct(t.Context(), right, []queue.Change{{RowKey: "a"}})
	if right.Done("a") || keeper.Panics(restart.Direct) != 1 {
		t.Errorf("at once: done %t, %d panics", right.Done("a"), keeper.Panics(restart.Direct))
	}
}

// What panics while it asks for tasks begins again: meanwhile it keeps no place from others, and no probe.
func TestP5_APanicBeforeABatchKeepsNothing(t *testing.T) {
	t.Parallel()
	inWork := limit.NewInWork(1)
	w, m, _ := inMemory(t, forms()["table"], func(o *Options) { o.InWork = inWork })
	m.refuseLease = func() { panic("of " + textA) }
	w.nap.resting = true
	if wait, probe := w.nap.enter(time.Now()); wait != 0 || !probe || !inWork.TryEnter(1) {
		t.Fatalf("no probe: %s", wait)
	}
	err := w.o.Keeper.Guard(t.Context(), restart.Worker, func() error {
		_, err := w.once(t.Context(), t.Context(), queue.Anyone, true, &limit.Grant{Rows: 1}, nil)
		return err
	})
	if _, panicked := errors.AsType[*restart.Error](err); !panicked {
		t.Fatal(err)
	}
	if !inWork.Free(1) {
		t.Error("its place is still taken")
	}
	if wait, probe := w.nap.enter(time.Now()); !probe {
		t.Errorf("nobody probes any more: wait %s", wait)
	}
}
