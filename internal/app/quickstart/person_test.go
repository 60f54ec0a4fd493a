package quickstart

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

func TestPerson_Agrees(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]bool{
		"y\n": true, " YES \n": true, "\n": false, "no\n": false, "yesterday\n": false,
	} {
		var out strings.Builder
		p := &Person{In: strings.NewReader(typed + "a text\n"), Out: &out, Answers: true}
		got, err := p.Agree(t.Context(), "Go on?", func() {})
		if got != want || err != nil || out.String() != "Go on? [y/N, s: SQL] " {
			t.Errorf("%q: %v, %v, %q", typed, got, err, out.String())
		}
		if got := <-p.Lines(t.Context()); got != "a text" {
			t.Errorf("the next line is %q", got)
		}
		if _, more := <-p.Lines(t.Context()); more {
			t.Error("a line behind the last one")
		}
	}
}

// TestPerson_SeesTheSQL: each s shows the SQL, and the question comes again.
func TestPerson_SeesTheSQL(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &Person{In: strings.NewReader("s\nS \ny\n"), Out: &out, Answers: true}
	shown := 0
	if got, err := p.Agree(t.Context(), "Go on?", func() { shown++ }); !got || err != nil || shown != 2 ||
		strings.Count(out.String(), "Go on?") != 3 {
		t.Errorf("%v, %v, shown %d times: %q", got, err, shown, out.String())
	}
}

func TestPerson_IsAskedWithADefault(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]bool{"\n": true, "Y\n": true, "what?\n": true, " No \n": false, "n\n": false} {
		var out strings.Builder
		p := &Person{In: strings.NewReader(typed), Out: &out, Answers: true}
		if got, err := p.Ask(t.Context(), "Use it?"); got != want || err != nil || out.String() != "Use it? [Y/n] " {
			t.Errorf("%q: %v, %v, %q", typed, got, err, out.String())
		}
	}
	for _, p := range []*Person{{Yes: true, Answers: true}, {}} {
		if yes, err := p.Ask(t.Context(), "Use it?"); !yes || err != nil {
			t.Errorf("%+v: %v, %v", p, yes, err)
		}
	}
}

func TestPerson_NobodyIsThere(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, p := range []*Person{
		{In: strings.NewReader("y\n"), Out: &out}, {In: strings.NewReader(""), Out: &strings.Builder{}, Answers: true},
	} {
		if yes, err := p.Agree(t.Context(), "Go on?", nil); yes || problem.Of(err) != problem.Usage {
			t.Errorf("%v, %v", yes, err)
		}
	}
	p := &Person{In: strings.NewReader(""), Out: &out, Yes: true}
	if yes, err := p.Agree(t.Context(), "Go on?", nil); !yes || err != nil {
		t.Errorf("%v, %v", yes, err)
	}
	if p.Prompt(); out.Len() > 0 {
		t.Errorf("nobody reads it: %q", out.String())
	}
}

func TestPerson_IsNotWaitedForWhenAllIsOver(t *testing.T) {
	t.Parallel()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	p := &Person{In: strings.NewReader(""), Out: &strings.Builder{}, Answers: true, lines: make(chan string)}
	if yes, err := p.Agree(ctx, "Go on?", nil); yes || !errors.Is(err, over) {
		t.Errorf("%v, %v", yes, err)
	}
}

// TestTrust_AQuestionShowsNamesAsTheyAre: a question about trust contains a name that its owner chose. Control
// characters in the name do not reach the terminal, so it cannot fake another question.
func TestTrust_AQuestionShowsNamesAsTheyAre(t *testing.T) {
	t.Parallel()
	const name = "mallory\x1b[2K\rUse chunks\n"
	var out strings.Builder
	p := &Person{In: strings.NewReader("\n\n"), Out: &out, Answers: true}
	_, err := p.Agree(t.Context(), "Trust "+name+"?", nil)
	_, err2 := p.Ask(t.Context(), "Trust "+name+"?")
	if err = errors.Join(err, err2); err != nil || strings.ContainsAny(out.String(), "\x1b\r\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestTrust_ANameEndsNoHereDocument: a line in a name does not end the here-document that the user pastes into a shell.
func TestTrust_ANameEndsNoHereDocument(t *testing.T) {
	t.Parallel()
	for _, block := range []string{
		`GRANT SELECT ON "a` + "\nSQL\necho run by the shell\n" + `" TO b;`,
		"SQL\necho run by the shell\nSQL_",
		`CREATE EXTENSION vector;`,
	} {
		end := endOf(block)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "cat <<'"+end+"';\n"+block+"\n"+end+"\n").CombinedOutput()
		if err != nil || string(out) != block+"\n" {
			t.Errorf("%q came as %q, %v", block, out, err)
		}
	}
}
