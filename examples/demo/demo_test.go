package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse_RefusesWhatMakesNoSense(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--rows", "5"}, "--rows: expected 100 or more, not 5"},
		{[]string{"--port", "70000"}, "--port: expected 1 to 65535, not 70000"},
		{[]string{"--faults", "0"}, "--faults: expected 1 or more, not 0"},
		{[]string{"break"}, `what is "break"?`},
		{[]string{"--nonsense"}, "flag provided but not defined"},
	} {
		var stderr bytes.Buffer
		if _, err := parse(tt.args, nil, &stderr); err == nil || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%v: got %v and %q, want %q", tt.args, err, stderr.String(), tt.want)
		}
	}
}

func TestParse_BreaksByFlagAndByVariable(t *testing.T) {
	for _, tt := range []struct {
		args, environ []string
		want          bool
	}{
		{nil, nil, false},
		{[]string{"--break"}, nil, true},
		{nil, []string{"BREAK=1"}, true},
		{nil, []string{"BREAK=0"}, false},
		{nil, []string{"BREAK="}, false},
	} {
		var stderr bytes.Buffer
		o, err := parse(tt.args, tt.environ, &stderr)
		if err != nil || o.broken != tt.want {
			t.Errorf("%v %v: got %t, %v; want %t", tt.args, tt.environ, o.broken, err, tt.want)
		}
	}
}

func TestReadTexts_ReadsTheFileOfThisRepository(t *testing.T) {
	texts, err := readTexts(filepath.Join("..", "debian-packages.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if loaded := len(texts) * 15 / 16; loaded < 5000 {
		t.Errorf("%d texts are loaded, want 5000 or more", loaded)
	}
	ids := map[int32]bool{}
	for _, p := range texts {
		if p.name == "" || p.summary == "" || ids[p.id] {
			t.Errorf("%+v is empty or there twice", p)
		}
		ids[p.id] = true
	}
}

func TestReadTexts_NamesTheLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "texts.csv")
	if err := os.WriteFile(path, []byte("id,name,section,summary\nx,a,b,c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTexts(path); err == nil || !strings.Contains(err.Error(), `line 2: id "x" is no number`) {
		t.Errorf("got %v", err)
	}
}

func TestCounters_AddUpOverStarts(t *testing.T) {
	answer := "# TYPE embedsidecar_writes_total counter\nembedsidecar_writes_total{outcome=\"written\",pipeline=\"p\"} %d\nembedsidecar_writes_total{outcome=\"stale\",pipeline=\"p\"} 1\n"
	written := 3
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, answer,
			written)
	}))
	t.Cleanup(server.Close)
	var c counters
	look := func(start int) {
		values, err := readMetrics(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		c.set(start, values)
	}
	look(1)
	written = 5
	look(1) // the same process again
	written = 2
	look(2)
	if got := c.get("writes_total", "outcome=written"); got != 7 {
		t.Errorf("written: got %d, want 7", got)
	}
	if got := c.get("writes_total"); got != 9 {
		t.Errorf("all: got %d, want 9", got)
	}
	if got := c.get("writes_total", "outcome=lost"); got != 0 {
		t.Errorf("lost: got %d, want 0", got)
	}
}

func TestCleanEnviron_KeepsWhatNamesPluginsAndModels(t *testing.T) {
	got := cleanEnviron([]string{
		"HOME=/h", "PGHOST=h", "EMBEDSIDECAR_SLOT=s", "EMBEDSIDECAR_MODEL_DIR=/m",
		"EMBEDSIDECAR_PLUGIN_THREADS=1",
	})
	if want := []string{"HOME=/h", "EMBEDSIDECAR_MODEL_DIR=/m", "EMBEDSIDECAR_PLUGIN_THREADS=1"}; !slices.Equal(got,
		want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestShell_QuotesWhatAShellWouldRead(t *testing.T) {
	if got, want := shell([]string{"a", "b c", "it's", ""}), `a 'b c' 'it'\''s' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNumbers_ReadWell(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000",
		-100: "-100",
	} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d): got %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1.2 ms", 56 * time.Millisecond: "56 ms",
		1500 * time.Millisecond: "1.50 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%s): got %s, want %s", d, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i)
	}
	for p, want := range map[int]time.Duration{0: 0, 50: 50, 99: 99, 100: 99} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile %d: got %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: got %s", got)
	}
}

func TestBar_DrawsWhatIsDone(t *testing.T) {
	b := newBar(0)
	if line := b.set(50, 100); !strings.Contains(line, "[############............]  50 %  50 of 100 vectors") {
		t.Errorf("got %q", line)
	}
	if line := b.set(100, 100); !strings.Contains(line, "100 %  100 of 100 vectors") || !strings.Contains(line, "ETA 0s") {
		t.Errorf("got %q", line)
	}
	if line := b.set(0, 0); !strings.Contains(line, "0 of") {
		t.Errorf("got %q", line)
	}
}

// A child must be found by the variable that marks it, and end when it is told to.
func TestChild_IsFoundAndStopped(t *testing.T) {
	s := &sidecar{program: "sleep", mark: "EMBEDSIDECAR_PLUGIN_DEMO=" + t.Name()}
	s.environ = append(os.Environ(), s.mark)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.command(ctx, "1000")
		ended <- err
	}()
	for len(processesWith(s.mark)) == 0 {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a command that was cancelled told of no error")
	}
	if left := processesWith(s.mark); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}
