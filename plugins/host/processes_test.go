package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// several returns a host with n processes.
func several(t *testing.T, processes int, env map[string]string) *host.Host {
	t.Helper()
	o := options(env)
	o.Processes = processes
	return open(t, o)
}

// busy keeps calls under way until the test ends. It returns a function that waits for them and returns their errors.
func busy(t *testing.T, h *host.Host, texts ...string) (wait func() []error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(texts))
	for i, text := range texts {
		wg.Go(func() { _, errs[i] = h.Embed(t.Context(), embed.Document, []string{text}) })
	}
	return func() []error { wg.Wait(); return errs }
}

// hasProcesses waits for a number of running processes and returns them.
func hasProcesses(t *testing.T, h *host.Host, n int) []host.Process {
	t.Helper()
	var list []host.Process
	eventually(t, fmt.Sprintf("%d processes run", n), func() error {
		if list = h.Stats().Processes; len(list) != n {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	return list
}

func TestProcesses_StartAsTheyAreNeeded(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	h := several(t, 3, map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "hang-on=HANG", "EMBEDSIDECAR_PLUGIN_CALLS": calls})
	for range 5 {
		mustEmbed(t, h, "a")
	}
	hasProcesses(t, h, 1)
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() { _, _ = h.Embed(t.Context(), embed.Document, []string{fmt.Sprint("HANG ", i)}) })
		waitCalls(t, calls, 5+i+1)
		switch i {
		case 1: // first call under way
			hasProcesses(t, h, 2)
		case 3: // both processes busy
			hasProcesses(t, h, 3)
		}
	}
	for _, p := range hasProcesses(t, h, 3) {
		if p.Calls < 1 || p.Calls > 4 {
			t.Errorf("%d of 9 calls are with one of three processes", p.Calls)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestProcesses_ADeathFailsItsOwnCallsOnly(t *testing.T) {
	t.Parallel()
	h := several(t, 2, map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=20ms/call"})
	mustEmbed(t, h, "a")
	// Both processes are stopped during a call, so neither can answer before the other is dead.
	var list []host.Process
	eventually(t, "two processes run", func() error {
		for _, err := range busy(t, h, "b", "c")() { // two concurrent calls start the second process
			if err != nil {
				t.Fatal(err)
			}
		}
		if list = h.Stats().Processes; len(list) != 2 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	for _, p := range list {
		kill(t, p.Pid, syscall.SIGSTOP)
	}
	wait := busy(t, h, "d", "e")
	eventually(t, "each has a call", func() error {
		for _, p := range h.Stats().Processes {
			if p.Calls != 1 || p.Texts != 1 {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
	kill(t, list[1].Pid, syscall.SIGKILL)
	waitGone(t, list[1].Pid)
	kill(t, list[0].Pid, syscall.SIGCONT)
	failed := 0
	for _, err := range wait() {
		if err != nil {
			wantError(t, err, embed.Crash, "crashed")
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d calls failed, want the one of the dead process", failed)
	}
	if s := h.Stats(); s.Circuit != host.Closed || s.Processes[0].Pid != list[0].Pid {
		t.Errorf("stats: %+v", s)
	}
}

func TestProcesses_OneThatDiesIsReplacedWhileOthersWork(t *testing.T) {
	t.Parallel()
	h := several(t, 2, map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=2ms/call"})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := h.Embed(t.Context(), embed.Document, []string{"text"})
				switch class, code := embed.Classify(err); {
				case err == nil && got[0].Vector[0] != vector.Of("text", 384)[0]:
					t.Error("a wrong vector")
				case err != nil && (class != embed.Crash || code != "crashed") && class != embed.Transient:
					t.Errorf("unexpected error: %v", err)
				}
			}
		})
	}
	killed := map[int]bool{}
	eventually(t, "six processes have been killed, never both at a time", func() error {
		if list := h.Stats().Processes; len(list) == 2 && !killed[list[0].Pid] && !killed[list[1].Pid] {
			killed[list[0].Pid] = true
			kill(t, list[0].Pid, syscall.SIGKILL)
		}
		if len(killed) < 6 {
			return fmt.Errorf("%d", len(killed))
		}
		return nil
	})
	close(stop)
	wg.Wait()
	mustEmbed(t, h, "a") // closes the circuit if there was no answer between the last kills
	eventually(t, "all ends are noted", func() error {
		if s := h.Stats(); s.Ends != 6 || s.Circuit != host.Closed {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestCircuit_OpensFailsFastAndCloses(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "crash-on=CRASH"})
	o.RestartDelay, o.RestartDelayMax = 50*time.Millisecond, 50*time.Millisecond // the circuit's pauses are 500 ms
	h := open(t, o)
	mustEmbed(t, h, "a")
	// Until a call finds it open, which may be brief.
	eventually(t, "a call fails fast", func() error {
		_, err := h.Embed(t.Context(), embed.Document, []string{"CRASH"})
		s := h.Stats()
		if _, code := embed.Classify(err); code != "circuit_open" || s.Circuit != host.Open {
			return fmt.Errorf("%+v, %w", s, err)
		}
		wantError(t, err, embed.Transient, "circuit_open")
		var whole *embed.Error
		if errors.As(err, &whole); whole.RetryAfter <= 0 || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("the error says neither when to come again (%s) nor why: %v", whole.RetryAfter, err)
		}
		if s.Circuit == host.Closed || s.RetryIn < 0 || s.Reason == "" || s.Up {
			t.Errorf("stats: %+v", s)
		}
		return nil
	})
	starts := h.Stats().Starts
	eventuallyIn(t, h, host.HalfOpen) // the pause is over
	// One call probes it, and closes the circuit for all.
	mustEmbed(t, h, "a")
	if s := h.Stats(); s.Circuit != host.Closed || s.Reason != "" || s.Starts != starts+1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestCircuit_OneCallTriesAPluginThatHangs(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "hang-on=HANG", "EMBEDSIDECAR_PLUGIN_CALLS": calls})
	o.CallTimeout = func(_, bytes int) time.Duration {
		if bytes == len("HANG") {
			return 300 * time.Millisecond
		}
		return time.Hour
	}
	h := open(t, o)
	eventually(t, "the circuit opens", func() error {
		_, _ = h.Embed(t.Context(), embed.Document, []string{"HANG"})
		if h.Stats().Circuit == host.Closed {
			return errors.New("it is closed")
		}
		return nil
	})
	eventuallyIn(t, h, host.HalfOpen) // the pause is over
	before, err := vector.ReadCalls(calls)
	if err != nil {
		t.Fatal(err)
	}
	// The probe hangs until the host is closed, so all other calls find it under way.
	ends := make(chan error, 6)
	for i := range cap(ends) {
		go func() {
			_, err := h.Embed(t.Context(), embed.Document, []string{fmt.Sprint(i, " HANG")})
			ends <- err
		}()
	}
	for range cap(ends) - 1 {
		wantError(t, <-ends, embed.Transient, "circuit_open")
	}
	waitCalls(t, calls, len(before)+1)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-ends, embed.Transient, "unavailable")
	if now, err := vector.ReadCalls(calls); err != nil || len(now) != len(before)+1 {
		t.Errorf("%d calls reached the plugin, want 1 (%v)", len(now)-len(before), err)
	}
}

func TestMemory_ALeakCostsNoCall(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "leak=1MiB/call"})
	o.MemoryLimit = 256 << 20
	h := open(t, o)
	pids := map[int]bool{}
	eventually(t, "three processes have had to go", func() error {
		// A process above its limit gets only a few more calls here. If it kept growing it would be killed, and calls
		// would fail.
		if list := h.Processes(); len(list) == 1 && list[0].Memory > int64(o.MemoryLimit+o.MemoryLimit/16) {
			return fmt.Errorf("%+v is above its limit", list[0])
		}
		if _, err := h.Embed(t.Context(), embed.Document, []string{"a"}); err != nil {
			t.Fatalf("a call failed: %v", err)
		}
		pids[h.Pid()] = true
		if len(pids) < 4 {
			return fmt.Errorf("%d", len(pids)-1)
		}
		return nil
	})
	if s := h.Stats(); s.Ends != 0 || s.Circuit != host.Closed || s.Restarts() != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// attempts records when the log reported a failed replacement, and its retry delay.
type attempts struct {
	slog.Handler

	mu    sync.Mutex
	times []time.Time
	waits []time.Duration
}

func (*attempts) Enabled(context.Context, slog.Level) bool { return true }
func (a *attempts) WithAttrs([]slog.Attr) slog.Handler     { return a }

func (a *attempts) Handle(_ context.Context, r slog.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Attrs(func(attr slog.Attr) bool {
		if r.Message == "plugin not replaced" && attr.Key == "retry_in" {
			a.times, a.waits = append(a.times, r.Time), append(a.waits, attr.Value.Duration())
		}
		return true
	})
	return nil
}

// A replacement that cannot be started must not be retried with every measurement.
func TestMemory_AReplacementThatFailsIsTriedAgainAfterPauses(t *testing.T) {
	t.Parallel()
	seen := &attempts{}
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "leak=1MiB/call"})
	o.Path, o.Log, o.MemoryLimit, o.RestartDelayMax = filepath.Join(t.TempDir(), "embedsidecar-fake"), slog.New(seen),
		256<<20, time.Hour
	install(t, o.Path, "")
	h := open(t, o)
	mustEmbed(t, h, "a")
	if err := os.Remove(o.Path); err != nil {
		t.Fatal(err)
	}
	const tries = 6
	eventually(t, "it was tried some times", func() error {
		seen.mu.Lock()
		n := len(seen.times)
		seen.mu.Unlock()
		if list := h.Processes(); n == 0 && len(list) == 1 && list[0].Memory <= int64(o.MemoryLimit) {
			mustEmbed(t, h, "a")
		}
		if n < tries {
			return fmt.Errorf("%d tries", n)
		}
		return nil
	})
	if err := h.Close(); err != nil { // a pending retry does not delay it
		t.Fatal(err)
	}
	for n := 1; n < tries; n++ {
		if passed := seen.times[n].Sub(seen.times[n-1]); passed < seen.waits[n-1] {
			t.Errorf("try %d came %s after the one before, want at least %s", n+1, passed, seen.waits[n-1])
		}
	}
	if seen.waits[tries-1] < 8*seen.waits[0] {
		t.Errorf("the pauses do not grow: %v", seen.waits)
	}
}

func TestMemory_ATextThatTakesItAllIsBlamed(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "swell-on=SWELL"})
	o.MemoryLimit = 256 << 20
	h := open(t, o)
	mustEmbed(t, h, "a")
	eventuallyFails(t, h, "the process was measured", []string{"SWELL"}, embed.Crash, "memory")
	mustEmbed(t, h, "a")
}

func TestMemory_OneThatNeedsMoreThanItMayIsRefused(t *testing.T) {
	t.Parallel()
	o := options(nil)
	o.MemoryLimit = 1 << 20
	h := open(t, o)
	_, err := h.Describe(t.Context())
	wantError(t, err, embed.Configuration, "memory")
}

func TestProcesses_ChildrenDieWithThePlugin(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, h *host.Host){
		"killed": func(t *testing.T, h *host.Host) { t.Helper(); kill(t, h.Pid(), syscall.SIGKILL) },
		"closed": func(t *testing.T, h *host.Host) {
			t.Helper()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := filepath.Join(t.TempDir(), "forks")
			h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "fork", "EMBEDSIDECAR_PLUGIN_FORKS": list}))
			mustEmbed(t, h, "a")
			content, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			var children []int
			for line := range strings.FieldsSeq(string(content)) {
				pid, err := strconv.Atoi(line)
				if err != nil || !running(pid) {
					t.Fatalf("child %q: %v", line, err)
				}
				children = append(children, pid)
			}
			if len(children) != 2 {
				t.Fatalf("children %v, want one in the plugin's group and one outside", children)
			}
			end(t, h)
			for _, child := range children {
				waitGone(t, child)
			}
		})
	}
}

func TestProcesses_AFloodOfOutputIsBounded(t *testing.T) {
	t.Parallel()
	log, lines := countingLog()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "flood=20000/call"})
	o.Log = log
	h := open(t, o)
	for range 3 {
		mustEmbed(t, h, "a")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	said, dropped := lines("plugin output"), lines("plugin output dropped")
	if said == 0 || said > 5000 || dropped == 0 {
		t.Errorf("%d of 60000 lines are in the log, and %d remarks on others", said, dropped)
	}
}
