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

// Person is who sits before the program, or the input that stands in for somebody. It is not safe for concurrent use.
type Person struct {
	In      io.Reader
	Out     io.Writer
	Answers bool // somebody is there who can be asked
	Yes     bool // to whatever is asked

	lines chan string
}

// Prompt asks a person for a line. It replaces a line of progress.
func (p *Person) Prompt() {
	if p.Answers {
		_, _ = io.WriteString(p.Out, "\x1b[Ksearch> ")
	}
}

// Agree asks whether to go on, after s again once show has shown what is made. Its error is that nobody is there to be
// asked.
func (p *Person) Agree(ctx context.Context, question string, show func()) (bool, error) {
	if p.Yes {
		return true, nil
	}
	nobody := problem.New(problem.Usage, errors.New("there is no terminal to confirm; nothing was done"),
		"--yes does it without asking, --dry-run only tells")
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

// Ask asks what is yes by default, of someone who can answer.
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

// Lines gives the lines of the input, always the same ones. Nothing is read before it is called.
func (p *Person) Lines(ctx context.Context) <-chan string {
	if p.lines != nil {
		return p.lines
	}
	lines := make(chan string)
	p.lines = lines
	go func() { // a read cannot be broken off: where a person types nothing more, it ends with the process
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
