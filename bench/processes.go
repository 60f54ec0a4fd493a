package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Kinds of processes.
const (
	ofWriter    = "writer"         // the user's backends
	ofBackends  = "backends"       // those that work for the vectors
	ofWalsender = "walsender"      // the backend that decodes the WAL
	ofProgram   = "program"        // the sidecar, or an alternative
	ofPlugin    = "plugin"         // what the program has started
	ofServer    = "rest of server" // checkpointer, WAL writer, autovacuum and so on, shared by all
	ofBench     = "bench"          // the measurement itself
)

// processes adds up CPU time by kind of process. It looks at all of them many times a second and remembers what each
// had used when it was last there, so a backend that ends in between counts: what it used after that look is in the
// server's own sum over children that ended, and is shared out by what the ended ones had used.
type processes struct {
	conn    *pgxpool.Conn
	server  int // the postmaster
	ended   time.Duration
	enough  chan struct{}
	done    chan error
	mu      sync.Mutex
	program int
	spawned time.Duration     // of the program's children that ended
	seen    map[int]*seenProc // by pid
}

type seenProc struct {
	kind        string
	first, last time.Duration
	switches    int64 // at first
	gone        bool
}

const (
	lookAtClocks   = 25 * time.Millisecond
	lookAtSessions = 10 // times as seldom: it is a query
)

// watchProcesses starts counting. Existing processes count from now on, later ones completely. It ends with stop, or
// with ctx.
func watchProcesses(ctx context.Context, pool *pgxpool.Pool, server int) *processes {
	w := &processes{
		conn: must(pool.Acquire(ctx)), server: server, enough: make(chan struct{}), done: make(chan error, 1),
		seen: map[int]*seenProc{},
	}
	if err := w.look(ctx, true); err != nil {
		w.conn.Release()
		check(err)
	}
	w.ended = endedChildren(server)
	go func() {
		defer w.conn.Release()
		w.done <- w.run(ctx)
	}()
	return w
}

// add says which program is meant; 0: none. What it used before the beginning is left out if it was there then, unless
// it counts since its birth.
func (w *processes) add(program int, sinceBirth bool) {
	if program == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.program = program
	if !sinceBirth {
		w.spawned = endedChildren(program)
	}
	for _, pid := range descendants(program) {
		now, ok := cpuClock(pid)
		if !ok {
			continue
		}
		s := &seenProc{kind: ofPlugin, first: now, last: now, switches: switches(pid)}
		if pid == program {
			s.kind = ofProgram
		}
		if sinceBirth {
			s.first, s.switches = 0, 0
		}
		w.seen[pid] = s
	}
}

func (w *processes) run(ctx context.Context) error {
	tick := time.NewTicker(lookAtClocks)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-w.enough:
			return w.look(ctx, false)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if i%lookAtSessions == 0 {
			if err := w.look(ctx, false); err != nil {
				return err
			}
			continue
		}
		w.mu.Lock()
		w.clocksLocked()
		w.mu.Unlock()
	}
}

func (w *processes) clocksLocked() {
	for pid, s := range w.seen {
		if now, ok := cpuClock(pid); ok && now >= s.last {
			s.last = now
		} else {
			s.gone = true
		}
	}
}

// look reads the list of processes from the server.
func (w *processes) look(ctx context.Context, first bool) error {
	type session struct {
		PID        int
		Type, Name string
	}
	rows, _ := w.conn.Query(ctx, `SELECT pid, coalesce(backend_type, ''), coalesce(application_name, '')
		FROM pg_stat_activity WHERE pid IS NOT NULL UNION ALL SELECT $1::int, 'postmaster', ''`, w.server)
	sessions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[session]) // and what Query has failed with
	if err != nil {
		return fmt.Errorf("ask for the sessions: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range sessions {
		if _, known := w.seen[s.PID]; known {
			continue
		}
		seen := &seenProc{kind: kindOf(s.Type, s.Name)}
		if first {
			seen.first, _ = cpuClock(s.PID)
			seen.switches = switches(s.PID)
		}
		seen.last = seen.first
		w.seen[s.PID] = seen
	}
	w.clocksLocked()
	return nil
}

// kindOf tells a server process by what pg_stat_activity says of it.
func kindOf(backendType, application string) string {
	switch {
	case backendType == "walsender":
		return ofWalsender
	case backendType != "client backend" && backendType != "parallel worker":
		return ofServer
	case application == writerApplication:
		return ofWriter
	case strings.HasPrefix(application, "bench"):
		return ofBench
	default:
		return ofBackends
	}
}

// stop ends it and returns what was used by each kind, and how often those that are there have waited for something.
func (w *processes) stop() (used map[string]time.Duration, waits map[string]int64) {
	close(w.enough)
	check(<-w.done)
	used, waits = map[string]time.Duration{}, map[string]int64{}
	for pid, s := range w.seen {
		if n := switches(pid); n > 0 {
			waits[s.kind] += n - s.switches
		}
	}
	ended := endedChildren(w.server) - w.ended
	gone := map[string]time.Duration{}
	var whole, goneUsed time.Duration
	for _, s := range w.seen {
		used[s.kind] += s.last - s.first
		if s.gone && s.kind != ofProgram && s.kind != ofPlugin {
			whole += s.last
			gone[s.kind] += s.last - s.first
			goneUsed += s.last - s.first
		}
	}
	if w.program != 0 {
		used[ofPlugin] += endedChildren(w.program) - w.spawned
	}
	if rest := ended - whole; rest > 0 && goneUsed > 0 {
		for kind, d := range gone {
			used[kind] += time.Duration(float64(rest) * float64(d) / float64(goneUsed))
		}
	} else if rest > 0 {
		used[ofServer] += rest
	}
	return used, waits
}

// switches is how often the threads of a process have given up their core to wait for something.
func switches(pid int) (sum int64) {
	threads, _ := procfs.AllThreads(pid) // it may have ended, and a thread, too
	for _, thread := range threads {
		status, _ := thread.NewStatus()
		sum += int64(status.VoluntaryCtxtSwitches)
	}
	return sum
}

// stat reads /proc/PID/stat; zero for a process that has ended.
func stat(pid int) (s procfs.ProcStat) {
	if proc, err := procfs.NewProc(pid); err == nil {
		s, _ = proc.Stat()
	}
	return s
}

// ticks turns what /proc counts into a time.
func ticks(n int) time.Duration {
	const perSecond = 100 // on every Linux there is
	return time.Duration(n) * time.Second / perSecond
}

// endedChildren is the CPU time of a process's children that have ended, and of theirs.
func endedChildren(pid int) time.Duration {
	s := stat(pid)
	return ticks(s.CUTime + s.CSTime)
}

// cpuTime is the CPU time that a process and all that it started have used, those that ended included.
func cpuTime(pid int) (sum time.Duration) {
	for _, id := range descendants(pid) {
		s := stat(id)
		sum += ticks(int(s.UTime+s.STime) + s.CUTime + s.CSTime)
	}
	return sum
}

// cpuClock reads the clock of the CPU time that one process has used, its children not included. It counts in
// nanoseconds, where /proc has hundredths of a second.
func cpuClock(pid int) (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED; clock_getcpuclockid(3) makes the clock's number like this
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		return 0, false
	}
	return time.Duration(at.Nano()), true
}

// descendants are a process and all that it started and that is still there.
func descendants(pid int) []int {
	all, _ := procfs.AllProcs()
	children := map[int][]int{}
	for _, proc := range all {
		if s, err := proc.Stat(); err == nil {
			children[s.PPID] = append(children[s.PPID], proc.PID)
		}
	}
	found := []int{pid}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// resident reads how much memory of a process is resident, and the most that ever was, in MB of a million bytes.
func resident(pid int) (now, most float64) {
	defer during("read the memory of process %d", pid)
	status := must(must(procfs.NewProc(pid)).NewStatus())
	return float64(status.VmRSS) / 1e6, float64(status.VmHWM) / 1e6
}
