package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
)

const (
	bareLoop = "bare ONNX Runtime loop"
	whole    = "embedsidecar, commit to last vector"
)

// measureONNX measures a sidecar's throughput relative to the bare model, with texts and vectors in a table, on the
// same cores as the server.
func measureONNX(ctx context.Context, p *place) {
	f := newFigures("Texts/s with the real model (%s, %d mixed texts)", manifest.Default().Model.Default, p.realTexts)
	defer p.show(f, bareLoop)
	bare := p.bareModel(ctx)
	pool := p.docs(ctx, "onnx", 0)
	c := p.sidecar(pool, onnx...)
	settle(ctx, c, pool)
	// From the insert of all texts in one transaction to the last vector.
	inserted := 1
	ours := func(texts []string) {
		since := serverTime(ctx, pool)
		server, own := p.serverCPU(), cpuTime(c.PID())
		copyTexts(ctx, pool, len(texts), func(i int) (int, string) { return inserted + i, texts[i] })
		began := time.Now()
		inserted += len(texts)
		end := worked(ctx, c, pool, since, len(texts))
		f.add(whole, "texts/s", float64(len(texts))/end.Sub(began).Seconds())
		f.note(whole, serverCPU, micros(p.serverCPU()-server, len(texts)))
		f.note(whole, sidecarCPU, micros(cpuTime(c.PID())-own, len(texts)))
	}
	alone := func(texts []string) {
		own, began := ownCPU(), time.Now()
		must(bare.Embed(ctx, embed.Document, texts)) // it sorts them by length
		f.add(bareLoop, "texts/s", float64(len(texts))/time.Since(began).Seconds())
		f.note(bareLoop, "CPU us/text", micros(ownCPU()-own, len(texts)))
	}
	for round := range p.rounds {
		texts := p.mixed(p.realTexts)
		for i := range texts {
			texts[i] += fmt.Sprintf(" %d", round) // otherwise they would be cached
		}
		// In alternating order, so that a machine that becomes warm or busy favours neither.
		first, second := alone, ours
		if round%2 != 0 {
			first, second = ours, alone
		}
		first(texts)
		second(texts)
		p.say("onnx: round %d of %d", round+1, p.rounds)
	}
	p.verified(ctx, c, pool)
}

// bareModel is a sidecar's baseline: the default model in this process with the same threads, with texts in memory and
// vectors discarded.
func (p *place) bareModel(ctx context.Context) *model.Model {
	if p.bare == nil {
		folder, library := p.modelFiles()
		p.bare = must(model.Open(ctx, model.Options{Folder: folder, Library: library}))
		must(p.bare.Embed(ctx, embed.Document, []string{"the first one makes it allocate"}))
	}
	return p.bare
}

// modelFiles are the folder of the default model and ONNX Runtime, as the sidecar finds them.
func (p *place) modelFiles() (folder, library string) {
	find := config.NewFinder(filepath.Join(p.bin, "embedsidecar"), p.environ)
	return must(find.Model(manifest.Default().Model.Default, os.Getenv("EMBEDSIDECAR_MODEL_DIR"))),
		must(find.Library(manifest.Default().Library, os.Getenv("EMBEDSIDECAR_ONNXRUNTIME")))
}

// ownCPU is the CPU time of this process so far.
func ownCPU() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
