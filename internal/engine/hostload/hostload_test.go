package hostload

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/fstest"
	"time"
)

// A host is busy when all cores have been for a while, and stays so until there is some room again.
func TestBusy(t *testing.T) {
	t.Parallel()
	seen, now := look{own: 2}, time.Unix(0, 0)
	var trouble error
	m := &Meter{cores: 4, look: func() (look, error) { return seen, trouble }}
	during := func(d time.Duration, idle float64) (busy bool) {
		for end := now.Add(d); now.Before(end); now = now.Add(interval) {
			seen.up += interval.Seconds()
			seen.idle += 4 * idle * interval.Seconds()
			busy = m.Busy(now, 1, true)
		}
		return busy
	}
	for _, step := range []struct {
		others int
		idle   float64
		d      time.Duration
		want   bool
	}{
		{2, 0, time.Minute, false},
		{10, 0, 60 * time.Millisecond, false}, // a moment is nothing
		{6, 0, 2 * time.Second, true},
		{4, 0, 2 * time.Second, true},
		{3, 0, 2 * time.Second, false},
		{4, 0.6, 2 * time.Second, false},  // one of them works for us
		{40, 0.3, 2 * time.Second, false}, // in bursts
		{40, 0.2, 2 * time.Second, true},
		{40, 0.3, 2 * time.Second, true}, // once it is busy, more must be idle
		{40, 0.6, 2 * time.Second, false},
		{40, 0, time.Second, true},
	} {
		if seen.others = step.others; during(step.d, step.idle) != step.want {
			t.Fatalf("%d others for %s, %g idle: busy is not %t", step.others, step.d, step.idle, step.want)
		}
	}
	if now = now.Add(2 * memory); m.Busy(now, 1, true) {
		t.Error("what was long ago counts")
	}
	if during(time.Second, 0); !m.busy {
		t.Fatal("not busy")
	}
	if seen.own = 1; during(2*memory, 0) || during(time.Minute, 0) {
		t.Error("busy by those who may work for us")
	}
	if seen.own = 2; !during(time.Second, 0) {
		t.Fatal("not busy")
	}
	if trouble = errors.New("no such file"); during(time.Second, 0) {
		t.Error("busy by what cannot be read")
	}
}

// Where the kernel does not count idle time, threads that wait decide.
func TestBusy_WithoutIdleTime(t *testing.T) {
	t.Parallel()
	m, now, busy := &Meter{cores: 2, look: func() (look, error) { return look{others: 9}, nil }}, time.Unix(0, 0), false
	for range 2 * fewest {
		now = now.Add(interval)
		busy = m.Busy(now, 0, false)
	}
	if !busy {
		t.Error("not busy")
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	proc := fstest.MapFS{}
	put := func(name, content string) { proc[name] = &fstest.MapFile{Data: []byte(content)} }
	put("stat", "cpu  1 2 3\ncpu0 1 2\ncpu1 1 2\ncpu10 1 2\nintr 5\nctxt 7\n")
	put("loadavg", "4.20 3.18 2.12 7/452 11206\n")
	put("self/task/1/stat", "1 (a (bad) R name) S 0 1\n")
	put("self/task/2/stat", "2 (x) R 0 1\n")
	put("self/task/3/stat", "3 (y) R 0 1\n")
	if n, err := countCores(proc); err != nil || n != 3 {
		t.Errorf("countCores() = %d, %v, want 3", n, err)
	}
	if n, _, err := countOthers(proc); err != nil || n != 5 {
		t.Errorf("countOthers() = %d, %v, want 5", n, err)
	}
	put("self/task/2/children", "7 8 ")
	put("7/task/7/stat", "7 (plugin) S 0 1\n")
	put("7/task/9/stat", "9 (plugin) R 0 1\n")
	if n, _, err := countOthers(proc); err != nil || n != 4 {
		t.Errorf("countOthers() = %d, %v beside a plugin, want 4", n, err)
	}
	put("loadavg", "4.20 3.18 2.12 2/452 11206\n")
	if n, _, err := countOthers(proc); err != nil || n != 1 {
		t.Errorf("countOthers() = %d, %v, want 1", n, err)
	}
	for _, broken := range []string{"", "0.1 0.2 0.3", "0.1 0.2 0.3 x/4 5"} {
		put("loadavg", broken)
		if _, _, err := countOthers(proc); err == nil {
			t.Errorf("countOthers() read %q", broken)
		}
	}
	put("loadavg", "4.20 3.18 2.12 2/452 11206\n")
	put("uptime", "41235.07 20431.55\n")
	if l, err := lookAt(proc); err != nil || l != (look{others: 1, up: 41235.07, idle: 20431.55}) {
		t.Errorf("lookAt() = %+v, %v", l, err)
	}
	put("uptime", "41235.07")
	if _, err := lookAt(proc); err == nil {
		t.Error("lookAt() read half of the idle time")
	}
	put("stat", "nothing")
	if _, err := countCores(proc); err == nil {
		t.Error("countCores() found cores in nothing")
	}
}

// What the system says can be read, and a host without /proc is never busy.
func TestNew(t *testing.T) {
	t.Parallel()
	m := New()
	if runtime.GOOS != "linux" {
		if m.Busy(time.Now(), 0, false) {
			t.Error("busy by what is not known")
		}
		return
	}
	if l, err := m.look(); err != nil || l.others < 0 || l.up <= 0 || l.idle < 0 || m.cores < 2 {
		t.Errorf("%+v on %d cores, %v", l, m.cores, err)
	}
	if own := countOwn(os.DirFS("/proc"), "self"); own < 1 {
		t.Errorf("countOwn() = %d: this thread runs", own)
	}
	if (&Meter{}).Busy(time.Now(), 0, false) {
		t.Error("a Meter of nothing is busy")
	}
}
