package logging

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

type hidden struct{}

func (hidden) String() string { return "hunter2" }

// A secret does not get into the log, whatever contains it.
func TestNew_LetsNothingSecretThrough(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log := New(&b, Options{Format: format, Redact: func(s string) string {
			return strings.ReplaceAll(s, "hunter2", "xxxxx")
		}})
		log.With("dsn", "u:hunter2@h").WithGroup("g").InfoContext(t.Context(), "connect with hunter2",
			"error", errors.New("password hunter2"), "list", []string{"a", "hunter2"}, "stringer", hidden{},
			slog.Group("more", "text", "hunter2"), "took", 1500*time.Millisecond, "n", 7)
		got := b.String()
		if strings.Contains(got, "hunter2") || strings.Count(got, "xxxxx") != 6 || !strings.Contains(got, "1.5s") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// TestTrust_ErrorsAreLoggedByTheirWords: a server's message may quote a row.
func TestTrust_ErrorsAreLoggedByTheirWords(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log := New(&b, Options{
		Format: "json", Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "xxxxx") },
		Words: func(err error) string { return strings.ReplaceAll(err.Error(), "a row", "*") },
	})
	log.WarnContext(t.Context(), "failed", "error", errors.New("invalid: a row, hunter2"))
	if got := b.String(); !strings.Contains(got, `"invalid: *, xxxxx"`) {
		t.Error(got)
	}
}

func TestNew_FormsAndLevels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		format   string
		terminal bool
		json     bool
	}{{"auto", true, false}, {"auto", false, true}, {"json", true, true}, {"text", false, false}} {
		var b strings.Builder
		log := New(&b, Options{
			Format: test.format, Terminal: test.terminal, Level: slog.LevelWarn, Redact: func(s string) string { return s },
		})
		log.InfoContext(t.Context(), "not told")
		log.WarnContext(t.Context(), "told")
		if got := b.String(); strings.HasPrefix(got, "{") != test.json || strings.Count(got, "\n") != 1 {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// Logging does not block while nobody reads the log, and the reader later gets the number of lost lines.
func TestP5_ALogThatNobodyReadsStopsNobody(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	log := New(w, Options{Format: "json", Patience: 20 * time.Millisecond, Redact: func(s string) string { return s }})
	for range 1000 {
		log.InfoContext(t.Context(), "told to nobody")
	}
	read := bufio.NewScanner(r)
	next := func() string {
		if !read.Scan() {
			t.Fatal(read.Err())
		}
		return read.Text()
	}
	if got := next(); !strings.Contains(got, "told to nobody") {
		t.Errorf("first %s", got)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for got := next(); ; got = next() {
			lines <- got
			if strings.Contains(got, "told again") {
				return
			}
		}
	}()
	var got []string
	for end := time.After(time.Minute); len(got) < 2; {
		log.InfoContext(t.Context(), "told again")
		select {
		case line := <-lines:
			got = append(got, line)
		case <-end:
			t.Fatal("nothing is told any more")
		default:
		}
	}
	if !strings.Contains(got[0], `"level":"WARN"`) || !strings.Contains(got[0], `"lines":`) || !strings.Contains(got[1], "told again") {
		t.Errorf("then %q", got)
	}
}
