package host_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

func TestLife_CrashIsHeldAgainstTheTextsAndMended(t *testing.T) {
	t.Parallel()
	h := faulty(t, "crash-on=CRASH")
	mustEmbed(t, h, "a")
	first := h.Pid()
	for i := range 3 {
		eventuallyFails(t, h, "the plugin takes the call", []string{"x", "CRASH"}, embed.Crash, "crashed")
		if s := h.Stats(); s.Ends != uint64(i+1) && s.Ends != uint64(i) { // noted by the time of the next call
			t.Errorf("%d ends after %d crashes", s.Ends, i+1)
		}
	}
	mustEmbed(t, h, "a")
	waitGone(t, first)
	if s := h.Stats(); s.Restarts() != 3 || s.Ends != 3 || !s.Up || s.Circuit != host.Closed {
		t.Errorf("stats: %+v", s)
	}
}

// A query whose process is killed is retried once on the next process.
func TestP5_AQueryOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "crash-on=CRASH"})
	o.CallTimeout = func(int, int) time.Duration { return time.Hour }
	h := open(t, o)
	mustEmbed(t, h, "a")
	first := h.Pid()
	query := func(text string) error {
		_, err := h.Embed(t.Context(), embed.Query, []string{text})
		return err
	}
	kill(t, first, syscall.SIGSTOP)
	answer := make(chan error, 1)
	ask := func() { answer <- query("b") }
	go ask()
	eventually(t, "the process has the query", func() error {
		select {
		case err := <-answer: // the signal had not yet reached all threads
			go ask()
			return errors.Join(errors.New("it was answered"), err)
		default:
		}
		if list := h.Stats().Processes; len(list) != 1 || list[0].Calls != 1 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	kill(t, first, syscall.SIGKILL)
	if err := <-answer; err != nil {
		t.Errorf("the query whose process was killed: %v", err)
	}
	if h.Pid() == first {
		t.Error("the process was not killed")
	}
	before := h.Stats().Ends
	wantError(t, query("CRASH"), embed.Crash, "crashed")
	mustEmbed(t, h, "a")
	if ends := h.Stats().Ends - before; ends != 2 {
		t.Errorf("%d processes died of a query, want 2", ends)
	}
}

func TestLife_IsUnavailableWhileItWaitsToRestart(t *testing.T) {
	t.Parallel()
	o := options(nil)
	o.RestartDelay, o.RestartDelayMax = time.Hour, time.Hour
	h := open(t, o)
	mustEmbed(t, h, "a")
	kill(t, h.Pid(), syscall.SIGKILL)
	eventually(t, "the plugin is down", func() error {
		if h.Stats().Up {
			return errors.New("it is up")
		}
		return nil
	})
	_, err := h.Embed(t.Context(), embed.Document, []string{"a"})
	wantError(t, err, embed.Transient, "unavailable")
	var whole *embed.Error
	if errors.As(err, &whole); whole.RetryAfter < 40*time.Minute || whole.RetryAfter > 80*time.Minute {
		t.Errorf("retry after %s, want about an hour", whole.RetryAfter)
	}
	if _, err := h.Describe(t.Context()); err != nil {
		t.Errorf("describe needs no process once it is known: %v", err)
	}
}

func TestLife_SurvivesKillsFromOutside(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	h := open(t, options(map[string]string{
		"EMBEDSIDECAR_PLUGIN_CALLS":  calls,
		"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=2ms/call",
	}))
	mustEmbed(t, h, "a")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var answered atomic.Int64
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := h.Embed(t.Context(), embed.Document, []string{"text"})
			switch class, code := embed.Classify(err); {
			case err == nil:
				answered.Add(1)
				if got[0].Vector[0] != vector.Of("text", 384)[0] {
					t.Error("a wrong vector")
				}
			case class == embed.Crash && code == "crashed", class == embed.Transient && (code == "unavailable" ||
				code == "circuit_open"):
			default:
				t.Errorf("unexpected error: %v", err)
			}
		}
	})
	killed := map[int]bool{}
	var before int64
	eventually(t, "20 processes have been killed", func() error {
		// Kill every other process after an answer, the others as soon as they run.
		if pid := h.Pid(); pid != 0 && !killed[pid] && (len(killed)%2 == 0 || answered.Load() > before) {
			killed[pid] = true
			before = answered.Load()
			kill(t, pid, syscall.SIGKILL)
		}
		if len(killed) < 20 {
			return fmt.Errorf("%d", len(killed))
		}
		return nil
	})
	mustEmbed(t, h, "a")
	close(stop)
	wg.Wait()
	for pid := range killed {
		waitGone(t, pid)
	}
}

func TestLife_HangIsKilled(t *testing.T) {
	t.Parallel()
	for faults, text := range map[string]string{"hang-on=HANG": "HANG", "freeze-on=FREEZE": "FREEZE"} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": faults})
			o.CallTimeout = func(_, bytes int) time.Duration {
				if bytes == len(text) {
					return 250 * time.Millisecond
				}
				return time.Hour
			}
			h := open(t, o)
			mustEmbed(t, h, "a")
			pid := h.Pid()
			_, err := h.Embed(t.Context(), embed.Document, []string{text})
			wantError(t, err, embed.Crash, "deadline")
			waitGone(t, pid)
			mustEmbed(t, h, "a")
			if s := h.Stats(); s.Hangs != 1 || s.Starts != 2 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

func TestLife_HangOfOneIsNotHeldAgainstOthers(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "hang-on=HANG", "EMBEDSIDECAR_PLUGIN_CALLS": calls})
	o.CallTimeout = func(texts, _ int) time.Duration {
		if texts == 2 { // the second call, with the first under way
			return 300 * time.Millisecond
		}
		return time.Hour
	}
	h := open(t, o)
	mustEmbed(t, h, "a")
	errs := make(chan error, 1)
	go func() { // it hangs as well, but has no deadline
		_, err := h.Embed(t.Context(), embed.Document, []string{"the first one HANGs"})
		errs <- err
	}()
	waitCalls(t, calls, 2)
	_, err := h.Embed(t.Context(), embed.Document, []string{"the second one HANGs"})
	wantError(t, err, embed.Crash, "deadline")
	wantError(t, <-errs, embed.Transient, "unavailable")
}

func TestLife_CloseEndsCallsAndProcess(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]string{
		"slow": "cost=1h/call", "hanging": "hang-on=text",
		"frozen": "freeze-on=text",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, temp := filepath.Join(t.TempDir(), "calls"), shortTemp(t)
			o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": faults, "EMBEDSIDECAR_PLUGIN_CALLS": calls})
			o.TempDir = temp
			h := open(t, o)
			if _, err := h.Describe(t.Context()); err != nil {
				t.Fatal(err)
			}
			pid := h.Pid()
			errs := make(chan error, 1)
			go func() {
				_, err := h.Embed(t.Context(), embed.Document, []string{"text"})
				errs <- err
			}()
			waitCalls(t, calls, 1)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			wantError(t, <-errs, embed.Transient, "unavailable")
			if running(pid) {
				t.Errorf("plugin %d is still there", pid)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
			if err := h.Close(); err != nil {
				t.Errorf("second close: %v", err)
			}
			_, err := h.Embed(t.Context(), embed.Document, []string{"text"})
			wantError(t, err, embed.Transient, "unavailable")
		})
	}
}

func TestLife_CloseDuringStart(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "started")
	o := options(nil)
	o.Path = script(t, "echo $$ > "+marker+"; exec /bin/sleep 1000\n")
	h := open(t, o)
	errs := make(chan error, 1)
	go func() {
		_, err := h.Describe(t.Context())
		errs <- err
	}()
	pid := waitPid(t, marker)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-errs, embed.Transient, "unavailable")
	waitGone(t, pid)
}

// Processes that a plugin started die with it, even if they hold its output open.
func TestLife_KillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "child")
	o := options(nil)
	o.Path = script(t, "/bin/sleep 1000 & echo $! > "+marker+"; exec "+fake+"\n")
	h := open(t, o)
	mustEmbed(t, h, "a")
	child := waitPid(t, marker)
	if !running(child) {
		t.Fatal("the plugin's child is not there")
	}
	kill(t, h.Pid(), syscall.SIGKILL)
	waitGone(t, child)
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	mustEmbed(t, h, "a")
	child = waitPid(t, marker)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, child)
}

func TestLife_NoOrphanAfterSIGKILLOfTheHost(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]string{"idle": "", "hanging": "hang-on=second", "frozen": "freeze-on=second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp := shortTemp(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{hostKey + "=" + fake, "HOST_TEST_TEMP=" + temp, "HOST_TEST_FAULTS=" + faults}
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || !running(pid) {
				t.Fatalf("plugin %d is not there: %v", pid, err)
			}
			if faults == "freeze-on=second" {
				eventually(t, "the plugin is frozen", func() error {
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					if err == nil && !strings.Contains(string(stat), ") T ") {
						err = errors.New("it runs")
					}
					return err
				})
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			waitGone(t, pid)

			// Its folder for sockets remains. The next host that starts a plugin removes it, once it is old enough.
			left, err := filepath.Glob(filepath.Join(temp, "embedsidecar-plugin-*"))
			if err != nil || len(left) != 1 {
				t.Fatalf("folders left: %v, %v", left, err)
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(left[0], old, old); err != nil {
				t.Fatal(err)
			}
			o := options(nil)
			o.TempDir = temp
			mustEmbed(t, open(t, o), "a")
			if _, err := os.Stat(left[0]); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder %s is still there: %v", left[0], err)
			}
		})
	}
}

// A folder in use is never swept.
func TestLife_SharesTheTemporaryFolder(t *testing.T) {
	t.Parallel()
	temp := shortTemp(t)
	o := options(nil)
	o.TempDir = temp
	a := open(t, o)
	mustEmbed(t, a, "a")
	used, err := filepath.Glob(filepath.Join(temp, "embedsidecar-plugin-*"))
	if err != nil || len(used) != 1 {
		t.Fatalf("folders: %v, %v", used, err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(used[0], old, old); err != nil {
		t.Fatal(err)
	}
	mustEmbed(t, open(t, o), "a")
	if _, err := os.Stat(used[0]); err != nil {
		t.Error(err)
	}
	// A folder that was deleted is made again.
	if err := os.RemoveAll(used[0]); err != nil {
		t.Fatal(err)
	}
	kill(t, a.Pid(), syscall.SIGKILL)
	mustEmbed(t, a, "a")
}

func TestLife_RestartsLeakNothing(t *testing.T) {
	h := faulty(t, "")
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	round := func() {
		mustEmbed(t, h, "a")
		pid := h.Pid()
		kill(t, pid, syscall.SIGKILL)
		waitGone(t, pid)
	}
	round()
	mustEmbed(t, h, "a")
	before := count()
	for range 20 {
		round()
	}
	mustEmbed(t, h, "a")
	eventually(t, "all files are closed", func() error {
		if after := count(); after > before {
			return fmt.Errorf("%d files are open, %d before 20 restarts", after, before)
		}
		return nil
	})
}

func TestLife_FingerprintMustNotChange(t *testing.T) {
	t.Parallel()
	h := faulty(t, "new-fingerprint")
	mustEmbed(t, h, "a")
	kill(t, h.Pid(), syscall.SIGKILL)
	eventuallyFails(t, h, "the change is seen", []string{"a"}, embed.Configuration, "fingerprint")
	if h.Pid() != 0 {
		t.Error("the plugin was left running")
	}
}

// kill sends a signal to a plugin, which may have ended already.
func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}

// waitCalls waits until a plugin has begun n calls.
func waitCalls(t *testing.T, path string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls have begun", n), func() error {
		calls, err := vector.ReadCalls(path)
		if err == nil && len(calls) < n {
			err = fmt.Errorf("%d", len(calls))
		}
		return err
	})
}

// waitPid waits for a file with a process id.
func waitPid(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, "a process id is in "+path, func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return pid
}

// shortTemp is a temporary folder whose name leaves room for sockets.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ht") //nolint:usetesting // t.TempDir has names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
