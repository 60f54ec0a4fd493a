package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// measureONNX measures how much of the bare model's speed is left when a sidecar carries texts from a table to it and
// vectors back, on the same cores as the server.
func measureONNX(ctx context.Context, p *place) (_ []section, err error) {
	f := newFigures("onnx", fmt.Sprintf("Texts/s with the real model (%s, %d mixed texts)",
		manifest.Default().Model.Default, p.realTexts))
	bare, err := p.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.end()) }()
	pool, err := p.docs(ctx, "onnx", 0)
	if err != nil {
		return nil, err
	}
	s, err := p.start(pool, onnx...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	for round := range p.rounds {
		texts := p.mixed(p.realTexts)
		for i := range texts {
			texts[i] += fmt.Sprintf(" %d", round) // or they would be known by now
		}
		// In turns first and second: a machine that grows warm or busy favours neither.
		steps := []func() error{
			func() error {
				own := bare.cpu()
				took, err := bare.batch(texts)
				if err == nil {
					f.add(bareLoop, "texts/s", float64(len(texts))/took.Seconds())
					f.note(bareLoop, "CPU us/text", micros(bare.cpu()-own, len(texts)))
				}
				return err
			},
			func() error { return p.endToEnd(ctx, f, s, texts, round) },
		}
		for i := range steps {
			if err := steps[(i+round)%len(steps)](); err != nil {
				return nil, err
			}
		}
		p.say("onnx: round %d of %d", round+1, p.rounds)
	}
	if err := p.verified(ctx, s); err != nil {
		return nil, err
	}
	return []section{f.done(bareLoop)}, nil
}

const (
	bareLoop = "bare ONNX Runtime loop"
	whole    = "embedsidecar, commit to last vector"
)

// endToEnd inserts texts in one transaction and waits for all vectors.
func (p *place) endToEnd(ctx context.Context, f *figures, s *sidecar, texts []string, round int) error {
	first := round*len(texts) + 1
	server, own := p.serverCPU(), s.cpu()
	var since time.Time
	if err := s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since); err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	_, err := s.pool.CopyFrom(ctx, pgx.Identifier{"public", "docs"}, []string{"id", "body"},
		pgx.CopyFromSlice(len(texts), func(i int) ([]any, error) { return []any{first + i, texts[i]}, nil }))
	if err != nil {
		return fmt.Errorf("insert texts: %w", err)
	}
	began := time.Now()
	end, err := s.worked(ctx, since, len(texts))
	if err != nil {
		return err
	}
	f.add(whole, "texts/s", float64(len(texts))/end.Sub(began).Seconds())
	f.note(whole, "server CPU us/text", micros(p.serverCPU()-server, len(texts)))
	f.note(whole, "sidecar CPU us/text", micros(s.cpu()-own, len(texts)))
	return nil
}

// bare is the program bench-bare: the model without a sidecar, a plugin or a database.
type bare struct {
	*child

	in  io.WriteCloser
	out *bufio.Reader
}

// startBare starts it with the model and the library that the sidecar finds.
func (p *place) startBare(ctx context.Context) (*bare, error) {
	find := config.NewFinder(filepath.Join(p.bin, "embedsidecar"), p.environ)
	folder, err := find.Model(manifest.Default().Model.Default, os.Getenv("EMBEDSIDECAR_MODEL_DIR"))
	if err != nil {
		return nil, err
	}
	library, err := find.Library(manifest.Default().Library, os.Getenv("EMBEDSIDECAR_ONNXRUNTIME"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(p.bin, "bench-bare"), folder, library) //nolint:noctx // it is ended in order, by end
	cmd.Env = p.environ
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start bench-bare: %w", err)
	}
	// A pipe of our own: that of cmd would be closed by Wait, which runs from the beginning.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start bench-bare: %w", err)
	}
	cmd.Stdout = w
	c, err := start(cmd, p.log("bare"))
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	b := &bare{child: c, in: in, out: bufio.NewReader(r)}
	if _, err := b.single("the first one makes it load"); err != nil {
		return nil, errors.Join(err, b.end())
	}
	return b, ctx.Err()
}

// batch embeds texts in one call, which sorts them by length, and returns how long that took.
func (b *bare) batch(texts []string) (time.Duration, error) {
	line, err := json.Marshal(texts)
	if err != nil {
		return 0, err
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return 0, fmt.Errorf("bench-bare: %w: %s", err, b.tail())
	}
	answer, err := b.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("bench-bare: %w: %s", err, b.tail())
	}
	return time.ParseDuration(strings.TrimSpace(answer))
}

func (b *bare) single(text string) (time.Duration, error) { return b.batch([]string{text}) }

func (b *bare) end() error {
	_ = b.in.Close() // tells it to end
	select {
	case <-b.done:
		return nil
	case <-time.After(timeout):
		return b.stop(syscall.SIGKILL)
	}
}
