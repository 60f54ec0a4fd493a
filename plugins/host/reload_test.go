package host_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

// countingLog returns a log and a function that counts its lines with a message.
func countingLog() (log *slog.Logger, count func(message string) int) {
	var lines logs.Buffer
	return slog.New(slog.NewTextHandler(&lines, nil)), func(message string) int {
		return strings.Count(lines.String(), fmt.Sprintf("msg=%q", message))
	}
}

// install installs another build of the fake plugin, as a package manager does, and returns its checksum.
func install(t *testing.T, path, build string) (sum string) {
	t.Helper()
	content, err := os.ReadFile(fake)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Write(path, append(content, build...)); err != nil {
		t.Fatal(err)
	}
	return sumOf(t, path)
}

// load embeds from several goroutines until it is stopped. Every failed call and every wrong vector fails the test.
func load(t *testing.T, h *host.Host) (calls func() int, stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for who := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				texts := []string{fmt.Sprint("a text ", who, i), fmt.Sprint("another ", i)}
				got, err := h.Embed(t.Context(), embed.Document, texts)
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				for j := range got {
					if want := vector.Of(texts[j], 384); got[j].Vector[0] != want[0] || got[j].Vector[383] != want[383] {
						t.Error("a wrong vector")
					}
				}
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { close(done); wg.Wait() }) }
	t.Cleanup(stop)
	return func() int { mu.Lock(); defer mu.Unlock(); return n }, stop
}

// after waits for n more calls.
func after(t *testing.T, calls func() int, more int) {
	t.Helper()
	from := calls()
	eventually(t, "calls go on", func() error {
		if n := calls(); n < from+more {
			return fmt.Errorf("%d of %d", n-from, more)
		}
		return nil
	})
}

func TestReload_MovesToAnotherBinaryUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "embedsidecar-fake")
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=2ms/call"})
	o.Path, o.SHA256, o.Processes = path, install(t, path, "first build"), 2
	h := open(t, o)
	calls, stop := load(t, h)
	after(t, calls, 20)
	for build := range 3 {
		old := h.Stats().Processes
		o.SHA256 = install(t, path, fmt.Sprint("build ", build))
		if err := h.Reload(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for _, p := range old {
			if running(p.Pid) {
				t.Errorf("process %d of the former build is still there", p.Pid)
			}
		}
		after(t, calls, 20)
	}
	stop()
	if s := h.Stats(); s.FailedCalls != 0 || s.Ends != 0 || s.Circuit != host.Closed {
		t.Errorf("stats: %+v", s)
	}
}

func TestReload_RefusesWhatIsNotTheSame(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]struct {
		change func(o *host.Options)
		code   string
	}{
		"width":       {func(o *host.Options) { o.Env["EMBEDSIDECAR_PLUGIN_DIMS"] = "7" }, "fingerprint"},
		"fingerprint": {func(o *host.Options) { o.Env["EMBEDSIDECAR_PLUGIN_FAULTS"] = "new-fingerprint" }, "fingerprint"},
		"vectors":     {func(o *host.Options) { o.Env["EMBEDSIDECAR_PLUGIN_FAULTS"] = "other-vectors" }, "drift"},
		"order":       {func(o *host.Options) { o.Env["EMBEDSIDECAR_PLUGIN_FAULTS"] = "permute-every=1" }, "order"},
		"file":        {func(o *host.Options) { o.SHA256 = strings.Repeat("0", 64) }, "checksum"},
		"start":       {func(o *host.Options) { o.Env["EMBEDSIDECAR_PLUGIN_FAULTS"] = "exit-at-start" }, "start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=1ms/call"}))
			calls, stop := load(t, h)
			after(t, calls, 10)
			pid := h.Pid()
			o := options(map[string]string{})
			other.change(&o)
			err := h.Reload(t.Context(), o)
			wantError(t, err, embed.Configuration, other.code)
			if !strings.Contains(err.Error(), "stays as it was") {
				t.Errorf("the error does not say what runs now: %v", err)
			}
			after(t, calls, 10)
			stop()
			if s := h.Stats(); len(s.Processes) != 1 || s.Processes[0].Pid != pid || s.Ends != 0 || s.Circuit != host.Closed {
				t.Errorf("stats %+v, want process %d as before", s, pid)
			}
		})
	}
}

func TestReload_ChangesTheNumberOfProcesses(t *testing.T) {
	t.Parallel()
	o := options(nil)
	h := open(t, o)
	if err := h.Reload(t.Context(), o); err != nil { // nothing runs yet
		t.Fatal(err)
	}
	if s := h.Stats(); s.Starts != 0 {
		t.Errorf("%d starts for nobody", s.Starts)
	}
	mustEmbed(t, h, "a")
	o.Processes = 3
	if err := h.Reload(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if s := h.Stats(); len(s.Processes) != 3 || s.Wanted != 3 {
		t.Errorf("stats: %+v", s)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, h.Reload(t.Context(), o), embed.Transient, "unavailable")
}

// A reload fixes a plugin that does not work, without waiting for the end of a pause.
func TestReload_EndsAPause(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "embedsidecar-fake")
	o := options(nil)
	o.Path, o.SHA256, o.RestartDelay = path, install(t, path, "first build"), time.Hour
	h := open(t, o)
	mustEmbed(t, h, "a")
	sum := install(t, path, "second build, of another sum")
	kill(t, h.Pid(), 9)
	eventually(t, "it is down", func() error {
		if s := h.Stats(); s.Up {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	_, err := h.Embed(t.Context(), embed.Document, []string{"a"})
	wantError(t, err, embed.Transient, "unavailable")
	o.SHA256 = sum
	if err := h.Reload(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Embed(t.Context(), embed.Document, []string{"a"}); err != nil {
		t.Error(err)
	}
}

func TestCanary_RefusesAPluginThatPermutes(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "permute-every=1"})
	o.Canary = time.Hour
	h := open(t, o)
	_, err := h.Embed(t.Context(), embed.Document, []string{"a", "b"})
	wantError(t, err, embed.Configuration, "order")
	if !strings.Contains(err.Error(), "fix the plugin") {
		t.Errorf("no way out: %v", err)
	}
}

// A plugin that becomes wrong after its start is detected while it runs.
func TestCanary_FindsOneThatBeginsToPermute(t *testing.T) {
	t.Parallel()
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "permute-every=7"}) // the start asks five times
	o.Canary = 20 * time.Millisecond
	h := open(t, o)
	mustEmbed(t, h, "a")
	pid := h.Pid()
	eventually(t, "it is caught", func() error {
		_, _ = h.Embed(t.Context(), embed.Document, []string{"a", "b"})
		s := h.Stats()
		ours := slices.ContainsFunc(s.Processes, func(p host.Process) bool { return p.Pid == pid })
		if s.Circuit == host.Closed && ours { // no process is listed between its end and the next start
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	waitGone(t, pid)
}

func TestCanary_AsksOnlyItsTexts(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_CALLS": calls})
	o.Canary = time.Hour
	h := open(t, o)
	mustEmbed(t, h, "a")
	recorded, err := vector.ReadCalls(calls)
	if err != nil {
		t.Fatal(err)
	}
	counts := vector.Counts(recorded)
	for _, text := range host.CanaryTexts() {
		if n := counts[vector.Hash(text)]; n != 2 { // alone and in a batch
			t.Errorf("a canary was asked %d times", n)
		}
		delete(counts, vector.Hash(text))
	}
	if len(counts) != 1 || counts[vector.Hash("a")] != 1 {
		t.Errorf("other texts: %v", counts)
	}
	if s := h.Stats(); s.Texts != 1 || s.Calls != 1 {
		t.Errorf("stats %+v: canaries are counted", s)
	}
}
