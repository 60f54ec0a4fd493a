package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

const (
	bareLoop = "bare ONNX Runtime loop"
	whole    = "embedsidecar, commit to last vector"
)

// measureONNX measures how much of the bare model's speed is left when a sidecar carries texts from a table to it and
// vectors back, on the same cores as the server.
func measureONNX(ctx context.Context, p *place) (_ []section, err error) {
	f := newFigures("Texts/s with the real model (%s, %d mixed texts)", manifest.Default().Model.Default, p.realTexts)
	bare, err := p.startBare()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.end()) }()
	pool, err := p.docs(ctx, "onnx", 0)
	if err != nil {
		return nil, err
	}
	c, err := p.sidecar(pool, onnx...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop(syscall.SIGTERM)) }()
	if err := settle(ctx, c, pool); err != nil {
		return nil, err
	}
	// From the insert of all texts in one transaction to the last vector.
	inserted := 1
	ours := func(texts []string) error {
		since, err := serverTime(ctx, pool)
		if err != nil {
			return err
		}
		server, own := p.serverCPU(), cpuTime(c.PID())
		if err := copyTexts(ctx, pool, len(texts), func(i int) (int, string) { return inserted + i, texts[i] }); err != nil {
			return err
		}
		began := time.Now()
		inserted += len(texts)
		end, err := worked(ctx, c, pool, since, len(texts))
		f.add(whole, "texts/s", float64(len(texts))/end.Sub(began).Seconds())
		f.note(whole, serverCPU, micros(p.serverCPU()-server, len(texts)))
		f.note(whole, sidecarCPU, micros(cpuTime(c.PID())-own, len(texts)))
		return err
	}
	alone := func(texts []string) error {
		own := cpuTime(bare.PID())
		took, err := bare.batch(texts...)
		f.add(bareLoop, "texts/s", float64(len(texts))/took.Seconds())
		f.note(bareLoop, "CPU us/text", micros(cpuTime(bare.PID())-own, len(texts)))
		return err
	}
	for round := range p.rounds {
		texts := p.mixed(p.realTexts)
		for i := range texts {
			texts[i] += fmt.Sprintf(" %d", round) // or they would be known by now
		}
		// In turns first and second: a machine that grows warm or busy favours neither.
		first, second := alone, ours
		if round%2 != 0 {
			first, second = ours, alone
		}
		if err := errors.Join(first(texts), second(texts)); err != nil {
			return nil, err
		}
		p.say("onnx: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done(bareLoop)}, p.verified(ctx, c, pool)
}

// bare is the program bench-bare: the model without a sidecar, a plugin or a database.
type bare struct {
	*child

	in  io.WriteCloser
	out *bufio.Reader
}

// startBare starts it with the model and the library that the sidecar finds.
func (p *place) startBare() (*bare, error) {
	find := config.NewFinder(filepath.Join(p.bin, "embedsidecar"), p.environ)
	folder, err := find.Model(manifest.Default().Model.Default, os.Getenv("EMBEDSIDECAR_MODEL_DIR"))
	if err != nil {
		return nil, err
	}
	library, err := find.Library(manifest.Default().Library, os.Getenv("EMBEDSIDECAR_ONNXRUNTIME"))
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &bare{in: in, out: bufio.NewReader(out)}
	b.child, err = p.startPiped(p.environ, theirIn, theirOut, filepath.Join(p.bin, "bench-bare"), folder, library)
	if err = errors.Join(err, theirIn.Close(), theirOut.Close()); err != nil {
		return nil, err
	}
	_, err = b.batch("the first one makes it load")
	return b, err
}

// batch embeds texts in one call, which sorts them by length, and returns how long that took.
func (b *bare) batch(texts ...string) (time.Duration, error) {
	line, err := json.Marshal(texts)
	if err != nil {
		return 0, err
	}
	_, err = b.in.Write(append(line, '\n'))
	var answer string
	if err == nil {
		answer, err = b.out.ReadString('\n')
	}
	if err != nil {
		return 0, b.failed("%w", err)
	}
	return time.ParseDuration(strings.TrimSpace(answer))
}

// end closes its input, which tells it to end.
func (b *bare) end() error { return errors.Join(b.in.Close(), b.stop(syscall.SIGTERM)) }
