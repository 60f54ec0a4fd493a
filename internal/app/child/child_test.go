package child

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

func shell(script string, to *strings.Builder) *Program {
	return &Program{
		Words: []string{"sh", "-c", script}, Stdin: strings.NewReader("asked"), Stdout: to, Stderr: to,
		Env: []string{"PATH=" + os.Getenv("PATH"), "WORD=said"},
	}
}

func TestRun_TellsHowItEnded(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]EndedError{
		"exit 7":        {Status: 7, What: "sh ended with status 7"},
		"kill -TERM $$": {Status: 143, What: "sh was ended by a signal: terminated"},
	} {
		got, ok := errors.AsType[*EndedError](shell(script, &strings.Builder{}).Run(t.Context()))
		if !ok || *got != want {
			t.Errorf("%s: %+v", script, got)
		}
	}
	var out strings.Builder
	if err := shell(`cat; echo " and $WORD"`, &out).Run(t.Context()); err != nil || out.String() != "asked and said\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Signals go to the program, which decides how to end. A signal before the start prevents the start.
func TestRun_Signals(t *testing.T) {
	t.Parallel()
	ready, signal := make(chan struct{}), make(chan os.Signal, 1)
	var out strings.Builder
	p := shell(`trap 'echo told; exit 3' USR1; echo ready >&2; while :; do sleep 0.01; done`, &out)
	p.Stderr, p.Signals = opened(ready), signal
	go func() {
		<-ready
		signal <- syscall.SIGUSR1
	}()
	got, ok := errors.AsType[*EndedError](p.Run(t.Context()))
	if !ok || got.Status != 3 || out.String() != "told\n" {
		t.Errorf("%+v, %q", got, out.String())
	}
	signal <- syscall.SIGTERM
	if err := p.Run(t.Context()); !errors.Is(err, signals.ErrInterrupted) {
		t.Errorf("%v", err)
	}
}

func TestRun_AContextTellsItToEnd(t *testing.T) {
	t.Parallel()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	ready := make(chan struct{})
	p := shell(`trap 'exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done`, &strings.Builder{})
	p.Stderr = opened(ready)
	go func() {
		<-ready
		cancel(over)
	}()
	if err := p.Run(ctx); !errors.Is(err, over) {
		t.Errorf("%v", err)
	}
}

func TestRun_WhatIsNoProgram(t *testing.T) {
	t.Parallel()
	p := Program{Words: []string{"/nowhere/program"}}
	if p.Check() == nil {
		t.Error("a program that is not there was found")
	}
	if err := p.Run(t.Context()); problem.Of(err) != problem.Usage {
		t.Errorf("%v", err)
	}
}

// opened is a writer that closes a channel at the first write.
func opened(c chan struct{}) *opener { return &opener{c} }

type opener struct{ c chan struct{} }

func (o *opener) Write(b []byte) (int, error) {
	close(o.c)
	return len(b), nil
}
