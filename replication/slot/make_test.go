package slot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// made is where a slot begins.
const made pglogrepl.LSN = 0x10

// memory is a server with one slot, for tests of the order in which one is made. What a server does is tried on a real
// one, in packages setup and sidecar.
type memory struct {
	slot   string // its name; "": there is none
	leases []int32
	begun  *history // what is written down

	mu   sync.Mutex // guards open and done
	open []database.Blocker
	each time.Duration // that the oldest one stays open

	refuse map[string]error // by what is asked
	done   []string
	cancel func() // called when leases are ended: whoever asked goes away
}

func (m *memory) do(ctx context.Context, what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = append(m.done, what)
	return errors.Join(m.refuse[what], ctx.Err())
}

func (m *memory) role() string { return "Me" }

func (m *memory) drop(ctx context.Context, name string) error {
	err := m.do(ctx, "drop")
	if err == nil && m.slot == name {
		m.slot = ""
	}
	return err
}

func (m *memory) create(ctx context.Context, sql []string) (pglogrepl.LSN, error) {
	for len(m.open) > 0 && m.each > 0 {
		<-time.After(m.each)
		m.end()
	}
	if err := m.do(ctx, "create"); err != nil {
		return 0, err
	}
	if m.slot != "" || !strings.Contains(sql[len(sql)-1], "'docs'") {
		return 0, errors.New("there is one")
	}
	m.slot = "docs"
	return made, nil
}

// end ends one of the transactions.
func (m *memory) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = m.open[1:]
}

func (m *memory) blockers(ctx context.Context) ([]database.Blocker, error) {
	err := m.do(ctx, "blockers")
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open, err
}

func (m *memory) voidLeases(ctx context.Context, _ string) ([]int32, error) {
	if m.cancel != nil {
		m.cancel()
	}
	return m.leases, m.do(ctx, "void")
}

func (m *memory) record(ctx context.Context, h history) error {
	err := m.do(ctx, "record")
	if err == nil {
		m.begun = &h
	}
	return err
}

// answer is what a server says.
func answer(code string) error { return &pgconn.PgError{Code: code, Message: "no"} }

// A new history begins with what the slot covers, and with a comparison of every row of its pipelines. No lease is left
// of the old one by then.
func TestMake_BeginsAHistory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*State)
		moved  bool
		done   string
	}{
		"there was one":         {func(*State) {}, false, "drop create void record"},
		"it is gone":            {func(s *State) { s.Exists = false }, false, "create void record"},
		"from another server":   {func(s *State) { s.SystemID = "8" }, true, "drop create void record"},
		"nothing was recorded":  {func(s *State) { s.Recorded, s.SystemID = false, "" }, false, "drop create void record"},
		"the server's new line": {func(s *State) { s.Timeline = 1 }, false, "drop create void record"},
	} {
		s := sound()
		c.change(&s)
		on := &memory{leases: []int32{7, 8}}
		if s.Exists {
			on.slot = s.Name
		}
		pipelines, err := (&Maker{Server: server}).makeOn(t.Context(), on, &s, "why")
		if err != nil || !slices.Equal(pipelines, on.leases) || strings.Join(on.done, " ") != c.done || on.slot != "docs" {
			t.Errorf("%s: %v, %v, in the order %v, slot %q", name, pipelines, err, on.done, on.slot)
			continue
		}
		h := on.begun
		if h.slot != "docs" || h.lsn != made || h.server != server || h.moved != c.moved || h.reason != "why" ||
			!slices.Equal(h.pipelines, on.leases) {
			t.Errorf("%s: the history is %+v", name, h)
		}
	}
}

// A slot that nobody has written down keeps WAL for nobody: so it goes, also when whoever asked has gone.
func TestP9_MakeLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"void", "record"} {
		s, broken := sound(), errors.New("broken")
		on := &memory{slot: "docs", refuse: map[string]error{step: broken}}
		pipelines, err := (&Maker{Server: server}).makeOn(t.Context(), on, &s, "why")
		if !errors.Is(err, broken) || pipelines != nil || on.slot != "" || on.begun != nil {
			t.Errorf("%s: %v, %v, slot %q, history %v", step, pipelines, err, on.slot, on.begun)
		}
	}
	s := sound()
	ctx, cancel := context.WithCancel(t.Context())
	on := &memory{slot: "docs", cancel: cancel}
	if _, err := (&Maker{}).makeOn(ctx, on, &s, "why"); !errors.Is(err, context.Canceled) || on.slot != "" {
		t.Errorf("whoever asked is gone: %v, slot %q", err, on.slot)
	}
	s.Exists = false
	first, second := errors.New("first"), errors.New("second")
	on = &memory{refuse: map[string]error{"record": first, "drop": second}}
	if _, err := (&Maker{}).makeOn(t.Context(), on, &s, "why"); !errors.Is(err, first) || !errors.Is(err, second) {
		t.Errorf("it cannot be dropped either: %v", err)
	}
}

// What cannot be made is told with what a person can do about it, and nothing is written down.
func TestMake_TellsWhyNot(t *testing.T) {
	t.Parallel()
	open := []database.Blocker{{PID: 9, Role: "somebody", Database: "app"}}
	conflict := func(err error) (hint []string) {
		if c, ok := errors.AsType[*refusal.ConflictError](err); ok {
			return c.Hint
		}
		return nil
	}
	denied := func(err error) (sql []string) {
		if p, ok := errors.AsType[*refusal.PermissionError](err); ok && p.Role == "Me" {
			return p.SQL
		}
		return nil
	}
	none := func(err error) []string { return append(conflict(err), denied(err)...) }
	slow := map[string]error{"create": answer(pgerrcode.QueryCanceled)}
	for name, c := range map[string]struct {
		on      *memory
		timeout time.Duration
		want    string
		hints   func(error) []string
		hint    string // the last
	}{
		"somebody holds it": {
			&memory{refuse: map[string]error{"drop": answer(pgerrcode.ObjectInUse)}}, 0,
			`drop slot "docs": ` + ErrBusy.Error(), none, "",
		},
		"another dropped it": {
			&memory{refuse: map[string]error{"drop": answer(pgerrcode.UndefinedObject)}}, 0,
			`drop slot "docs": ` + ErrBusy.Error(), none, "",
		},
		"another made it": {
			&memory{refuse: map[string]error{"create": answer(pgerrcode.DuplicateObject)}}, 0,
			`create slot "docs": ` + ErrBusy.Error(), none, "",
		},
		"it cannot be dropped": {
			&memory{refuse: map[string]error{"drop": answer(pgerrcode.InsufficientPrivilege)}}, 0, `drop slot "docs": `, none, "",
		},
		"it takes too long": {
			&memory{refuse: slow, open: open}, time.Minute, `"docs" could not be created within 1m0s`, conflict,
			"running: " + open[0].String(),
		},
		"it takes too long, and nobody can say why": {
			&memory{refuse: map[string]error{"create": slow["create"], "blockers": errors.New("broken")}}, time.Minute,
			"could not be created within 1m0s", conflict, "running: broken",
		},
		"somebody ends it, who waits as long as it takes": {
			&memory{refuse: slow, open: open}, 0, `create slot "docs": `, none, "",
		},
		"the role may not": {
			&memory{refuse: map[string]error{"create": answer(pgerrcode.InsufficientPrivilege)}}, 0, `create slot "docs"`, denied,
			`ALTER ROLE "Me" REPLICATION;`,
		},
	} {
		s, on := sound(), c.on
		on.slot = "docs"
		_, err := (&Maker{Timeout: c.timeout, Log: slog.New(slog.DiscardHandler)}).makeOn(t.Context(), on, &s, "why")
		if err == nil || !strings.Contains(err.Error(), c.want) || on.begun != nil || on.leases != nil {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		busy := strings.Contains(c.want, ErrBusy.Error())
		if held := busy && on.refuse["drop"] != nil; errors.Is(err, ErrBusy) != busy ||
			held && (on.slot == "" || len(on.done) > 1) {
			t.Errorf("%s: %v, slot %q, after %v", name, err, on.slot, on.done)
		}
		hints := c.hints(err)
		if c.hint == "" && hints != nil || c.hint != "" && (hints == nil || hints[len(hints)-1] != c.hint) {
			t.Errorf("%s: the ways out are %q, want %q", name, hints, c.hint)
		}
	}
}

// Whoever waits says for whom: soon, and again, but not for ever.
func TestMake_SaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, other := database.Blocker{PID: 9, Role: "one"}, database.Blocker{PID: 10, Role: "other"}
		var (
			out   bytes.Buffer
			told  [][]database.Blocker
			after []time.Duration
			began = time.Now()
		)
		s := sound()
		m := Maker{Log: slog.New(slog.NewTextHandler(&out, nil)), Tell: func(list []database.Blocker) {
			told, after = append(told, list), append(after, time.Since(began))
		}}
		on := &memory{slot: "docs", open: []database.Blocker{one, other}, each: 10 * time.Second}
		if _, err := m.makeOn(t.Context(), on, &s, "why"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		if len(told) != 2 || !slices.Equal(told[0], []database.Blocker{one, other}) ||
			!slices.Equal(told[1], []database.Blocker{other}) || after[0] > 5*time.Second || after[1] > 15*time.Second {
			t.Errorf("told %v after %v", told, after)
		}
		if log := out.String(); strings.Count(log, "slot=docs") != 2 || !strings.Contains(log, one.String()) {
			t.Errorf("in the log: %s", log)
		}
	})
	s := sound()
	if list, err := s.Blockers(t.Context(), nil); list != nil || err != nil { // nobody is asked
		t.Errorf("a slot that is there waits for %v, %v", list, err)
	}
}

// The position is what the last statement says.
func TestPosition_OfTheLastStatement(t *testing.T) {
	t.Parallel()
	row := func(values ...string) *pgconn.Result {
		r := &pgconn.Result{}
		for _, v := range values {
			r.Rows = append(r.Rows, [][]byte{[]byte(v)})
		}
		return r
	}
	for name, c := range map[string]struct {
		results []*pgconn.Result
		want    string // of the error
	}{
		"a position":     {[]*pgconn.Result{row(), row("0/10")}, ""},
		"no result":      {nil, "reported no position"},
		"one too few":    {[]*pgconn.Result{row("0/10")}, "reported no position"},
		"no row":         {[]*pgconn.Result{row("0/10"), row()}, "reported no position"},
		"two rows":       {[]*pgconn.Result{row(), row("0/10", "0/20")}, "reported no position"},
		"something else": {[]*pgconn.Result{row(), row("?")}, `position "?"`},
	} {
		lsn, err := position(c.results, 2)
		if c.want == "" && (err != nil || lsn != made) ||
			c.want != "" && (err == nil || lsn != 0 || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s, %v", name, lsn, err)
		}
	}
}

// TestMaker_AsksForAsLongAsItTakes: 0 is no limit, and standbys keep a copy where the server can have them do so.
func TestMaker_AsksForAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	s := sound()
	m := Maker{}
	for _, c := range []struct {
		failover bool
		version  int
		want     string
	}{
		{false, 180000, "SELECT lsn FROM pg_create_logical_replication_slot('docs', 'pgoutput')"},
		{true, 160000, "SELECT lsn FROM pg_create_logical_replication_slot('docs', 'pgoutput')"},
		{true, 170000, "SELECT lsn FROM pg_create_logical_replication_slot('docs', 'pgoutput', false, false, true)"},
	} {
		m.Failover, s.Version = c.failover, c.version
		want := []string{"SET lock_timeout = 0", "SET statement_timeout = 0", c.want}
		if got := m.statements(&s); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
