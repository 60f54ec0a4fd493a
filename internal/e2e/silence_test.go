//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// idleEnv is how long TestP6_IdleIsSilent listens, as a duration; 25s unless it is set.
const idleEnv = "EMBEDSIDECAR_IDLE"

// scansAsked counts the scans that were ever asked for.
const scansAsked = `SELECT coalesce(sum(requested), 0) FROM embedsidecar.scan`

// TestP6_IdleIsSilent counts what a sidecar with nothing to do does: at most ten statements in ten
// seconds over all its connections, less than 1 MB of WAL an hour and, over ten minutes, 0.2 % of a core.
func TestP6_IdleIsSilent(t *testing.T) {
	t.Parallel()
	span := 25 * time.Second
	if text := os.Getenv(idleEnv); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil || span < 10*time.Second {
			t.Fatalf("%s=%q: want a duration of at least 10s", idleEnv, text)
		}
	}
	// On a server of its own, for the WAL and the log belong to all of it. What the server itself does in the background
	// is not ours.
	server := testenv.Own(t, testenv.Options{Config: map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h",
		"bgwriter_lru_maxpages": "0",
	}})
	r, shapes := newShapesOn(t, server, "integers", "texts", "partitioned", "filtered")
	r.db.MustExecSuper(fmt.Sprintf("ALTER ROLE %s SET log_min_duration_statement = 0", r.role))
	// The rig's 3 s would end the stream of a sidecar that a busy machine forgets for as long: what it then does is no
	// idleness.
	r.senderTimeout("1min")
	c := r.run()
	r.streaming(c)
	run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 11, Writers: 1,
		Transactions: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	workload.Settle(t, r.db, shapes, oracle, waitTimeout)
	r.caughtUp()
	// What follows work (a last look at the queue, the end of a scan) is not idleness yet.
	pause(t.Context(), 2*time.Second)

	// A table that was truncated near the end is looked through once more when the next heartbeat finds its new file:
	// that is work, not idleness; and on a busy machine what follows work may come late, and an answer, so that it is
	// asked once more. One that is not silent by itself never is. So one of some spans must be.
	const spans = 5
	for attempt := 1; ; attempt++ {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return r.count(`SELECT count(*) FROM embedsidecar.scan WHERE phase <> 'done'`) == 0, "a scan is at work: " + c.tail()
		})
		scans := r.count(scansAsked)
		size, wal := r.logSize(), testenv.Value[string](r.db, `SELECT pg_current_wal_insert_lsn()::text`)
		begin, own, theirs := time.Now(), cpuTime(t, c.pid(), r.plugins()...), cpuTime(t, 0, r.backends()...)
		pause(t.Context(), span)
		c.mustLive()
		written := testenv.Value[int64](r.db, `SELECT pg_current_wal_insert_lsn() - $1::text::pg_lsn`, wal)
		connections := r.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, r.role)
		idle := time.Since(begin)
		own, theirs = cpuTime(t, c.pid(), r.plugins()...)-own, cpuTime(t, 0, r.backends()...)-theirs
		cpu := percent(own+theirs, idle)
		statements, total := r.statements(size)
		mostWritten, mostStatements := int64(1e6*idle.Hours()), 10*int(1+idle/(10*time.Second))
		t.Logf("%s: %d bytes of WAL, at most %d; CPU %.3f %% of a core (%.3f of sidecar and plugins, %.3f of their server processes); %d connections, %d statements (%.2f in 10 s), at most %d:\n%s",
			idle.Round(time.Second), written, mostWritten, cpu, percent(own, idle), percent(theirs, idle), connections, total,
			float64(total)/(idle.Seconds()/10), mostStatements, strings.Join(statements, "\n"))
		// In a shorter span a single look at something weighs too much.
		calm := idle < 10*time.Minute || cpu <= 0.2
		if r.count(scansAsked) == scans && written <= mostWritten && total <= mostStatements && calm {
			break
		}
		if attempt == spans {
			t.Fatalf("nothing changes, yet there is no silence in any of %d spans", spans)
		}
	}
	c.terminate()
}

// backends are the server processes of the sidecar's sessions, that of the stream among them.
func (r *rig) backends() (pids []int) {
	r.t.Helper()
	for _, pid := range testenv.Values[int32](r.db, `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
		AND (usename = $1 OR backend_type = 'walsender') ORDER BY pid`, r.role) {
		pids = append(pids, int(pid))
	}
	return pids
}

// cpuTime is what processes have used so far; 0 is none. One that has just ended has used nothing.
func cpuTime(t *testing.T, first int, more ...int) (used time.Duration) {
	t.Helper()
	for _, pid := range append(more, first) {
		if pid == 0 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// What comes after the name, which may hold anything: utime and stime are the 14th and 15th of all.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range fields[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			const tick = 10 * time.Millisecond // the kernel's, for whoever asks it, on all of its platforms
			used += time.Duration(n) * tick
		}
	}
	return used
}

func percent(part, whole time.Duration) float64 { return 100 * part.Seconds() / whole.Seconds() }

func (r *rig) logSize() int64 {
	r.t.Helper()
	info, err := os.Stat(r.db.Server.Log())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Size()
}

var logged = regexp.MustCompile(`(?m)^.*\] (\w+)@\w+ LOG:  duration: [0-9.]+ ms  (?:statement|execute [^:]*): (.*)$`)

// statements returns what the sidecar asked the server since its log had this size, with counts, and the number of all.
func (r *rig) statements(since int64) (list []string, total int) {
	r.t.Helper()
	b, err := os.ReadFile(r.db.Server.Log())
	if err != nil {
		r.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, found := range logged.FindAllSubmatch(b[since:], -1) {
		if !bytes.Equal(found[1], []byte(r.role)) {
			continue
		}
		total++
		counts[string(found[2])]++
	}
	for _, statement := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%4d  %.160s", counts[statement], statement))
	}
	return list, total
}
