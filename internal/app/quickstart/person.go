package quickstart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Person is the user at the terminal, or the input that replaces one. It is not safe for concurrent use.
type Person struct {
	In      io.Reader
	Out     io.Writer
	Answers bool // a user can be asked
	Yes     bool // answer every question with yes

	lines chan string
}

// Prompt shows the prompt for a line. It overwrites a progress line.
func (p *Person) Prompt() {
	if p.Answers {
		_, _ = io.WriteString(p.Out, "\x1b[Ksearch> ")
	}
}

// Agree asks whether to go on. If the user types s, it calls show and asks again. It returns an error if no user can be
// asked.
func (p *Person) Agree(ctx context.Context, question string, show func()) (bool, error) {
	if p.Yes {
		return true, nil
	}
	nobody := problem.New(problem.Usage, errors.New("there is no terminal to confirm; nothing was done"),
		"--yes does it without asking, --dry-run only shows the plan")
	if !p.Answers {
		return false, nobody
	}
	for {
		choice := " [y/N, s: SQL] "
		if show == nil {
			choice = " [y/N] "
		}
		_, _ = fmt.Fprint(p.Out, wording.OneLine(question)+choice)
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case line, more := <-p.Lines(ctx):
			if !more {
				return false, nobody
			}
			line = strings.ToLower(strings.TrimSpace(line))
			if line != "s" || show == nil {
				return line == "y" || line == "yes", nil
			}
			show()
		}
	}
}

// Ask asks a question whose default is yes. Without a user the answer is yes.
func (p *Person) Ask(ctx context.Context, question string) (bool, error) {
	if p.Yes || !p.Answers {
		return true, nil
	}
	_, _ = fmt.Fprint(p.Out, wording.OneLine(question)+" [Y/n] ")
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case line := <-p.Lines(ctx):
		line = strings.ToLower(strings.TrimSpace(line))
		return line != "n" && line != "no", nil
	}
}

// Lines returns the channel of the input's lines, the same one each time. Nothing is read before the first call.
func (p *Person) Lines(ctx context.Context) <-chan string {
	if p.lines != nil {
		return p.lines
	}
	lines := make(chan string)
	p.lines = lines
	go func() { // a blocked read cannot be cancelled: it ends with the process
		defer close(lines)
		input := bufio.NewScanner(p.In)
		for input.Scan() {
			select {
			case lines <- input.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}
