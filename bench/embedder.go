package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// A contender embeds all texts repeatedly; cpu is the CPU time that it has used so far.
type contender struct {
	name  string
	run   func()
	times int
	cpu   func() time.Duration
}

// Names of contenders.
const (
	inProcess            = "plugin onnx, in this process"
	overGRPC             = "plugin onnx, over gRPC"
	staticOverGRPC       = "plugin static, over gRPC"
	sentenceTransformers = "sentence-transformers"
)

// measureEmbedder measures the plugin onnx without server and sidecar: beside a bare loop over ONNX Runtime, beside
// sentence-transformers, and beside the plugin static where it has a model; the same texts and threads, in turns.
func measureEmbedder(ctx context.Context, p *place) {
	texts := p.mixed(p.realTexts)
	m := p.bareModel(ctx) // loads the library, too
	folder, library := p.modelFiles()
	plugin := p.startPlugin("onnx", "MODEL", folder, "ONNXRUNTIME", library)
	defer func() { _ = plugin.Close() }()
	contenders := []contender{
		{inProcess, func() { embedAll(ctx, m.Embed, texts) }, 1, ownCPU},
		{overGRPC, func() { embedAll(ctx, plugin.Embed, texts) }, 1, cpuWith(plugin)},
	}
	var first *loop
	for _, l := range loops {
		b := newLoop(folder, l.runForThread, l.spin, texts)
		p.say("embedder: %s: fastest with %d tokens in a batch", l.name, b.budget)
		contenders = append(contenders, contender{l.name, func() { b.all(b.budget) }, 1, ownCPU})
		if first == nil {
			first = b
		}
	}
	if p.static != "" {
		static := p.startPlugin("static", "MODEL", p.static)
		defer func() { _ = static.Close() }()
		run := func() { embedAll(ctx, static.Embed, texts) }
		contenders = append(contenders, contender{staticOverGRPC, run, 20, cpuWith(static)})
	}
	if p.python != "" {
		st := p.startPython(ctx, texts)
		defer st.end()
		contenders = append(contenders, contender{sentenceTransformers, func() { st.encode(st.texts, st.batch) }, 1, st.cpu})
	}
	p.takeTurns(contenders, len(texts))
	p.oneByOne(texts, []way{
		{loops[0].name, first.one},
		{inProcess, func(text string) { embedAll(ctx, m.Embed, []string{text}) }},
		{overGRPC, func(text string) { embedAll(ctx, plugin.Embed, []string{text}) }},
	})
}

// startPlugin starts a plugin with such settings, names and values in turns, as the sidecar does.
func (p *place) startPlugin(name string, settings ...string) *host.Host {
	environ := map[string]string{}
	for pair := range slices.Chunk(settings, 2) {
		environ["EMBEDSIDECAR_PLUGIN_"+pair[0]] = pair[1]
	}
	return must(host.New(host.Options{Path: filepath.Join(p.bin, "plugins", "embedsidecar-"+name), Env: environ}))
}

// cpuWith is the CPU time of a plugin's process and of this one, which calls it.
func cpuWith(plugin *host.Host) func() time.Duration {
	return func() time.Duration { return ownCPU() + cpuTime(plugin.Pid()) }
}

// takeTurns runs the contenders in turns; each round starts with another one.
func (p *place) takeTurns(contenders []contender, texts int) {
	f := newFigures("Texts/s of an embedder alone (%d mixed texts, %d threads)", texts, runtime.GOMAXPROCS(0))
	defer p.show(f, loops[0].name, loops[1].name, loops[2].name, overGRPC, sentenceTransformers)
	for _, c := range contenders {
		c.run() // a first time for everything
	}
	for round := range p.rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			before, began := c.cpu(), time.Now()
			for range c.times {
				c.run()
			}
			f.add(c.name, "texts/s", float64(texts*c.times)/time.Since(began).Seconds())
			f.note(c.name, "CPU us/text", micros(c.cpu()-before, texts*c.times))
		}
		p.say("embedder: round %d of %d", round+1, p.rounds)
	}
}

// A way embeds a single text.
type way struct {
	name string
	one  func(text string)
}

// oneByOne compares the latency of single texts. Each text is embedded in all ways, directly one after the other and in
// changing order, so that a busy moment of the machine affects all. The first way is the baseline.
func (p *place) oneByOne(texts []string, ways []way) {
	const rounds, singles = 4, 200
	f := newFigures("One text at a time")
	defer p.show(f, ways[0].name)
	for range rounds {
		for i, text := range texts[:min(singles, len(texts))] {
			for place := range ways {
				w := ways[(i+place)%len(ways)]
				began := time.Now()
				w.one(text)
				f.add(w.name, "ms", millis(time.Since(began)))
			}
		}
		slices.Reverse(ways) // so that none always follows the same one
	}
}

// embedAll embeds texts in calls of as many as the plugin takes.
func embedAll(ctx context.Context, with func(context.Context, embed.Kind, []string) ([]embed.Result, error),
	texts []string,
) {
	const callTexts = 512
	for chunk := range slices.Chunk(texts, callTexts) {
		must(with(ctx, embed.Document, chunk))
	}
}

// python is a process with sentence-transformers.
type python struct {
	in    *json.Encoder
	out   *json.Decoder
	end   func()
	texts []string
	used  time.Duration // CPU time of all encodes so far
	batch int           // texts in a batch, whichever is fastest
}

func (p *place) startPython(ctx context.Context, texts []string) *python {
	defer during("start sentence-transformers")
	script := filepath.Join(p.bin, "..", "bench", "st.py")
	cmd := exec.CommandContext(ctx, p.python, script, p.weights, strconv.Itoa(runtime.GOMAXPROCS(0)))
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	st := &python{in: json.NewEncoder(in), out: json.NewDecoder(out), texts: texts, end: func() {
		_ = in.Close()
		_ = cmd.Wait()
	}}
	few := texts[:min(400, len(texts))]
	st.batch = fastest([]int{4, 8, 16, 32}, func(batch int) { st.encode(few, batch) })
	p.say("embedder: sentence-transformers is fastest with %d texts in a batch", st.batch)
	return st
}

// encode embeds texts.
func (st *python) encode(texts []string, batch int) {
	defer during("sentence-transformers")
	check(st.in.Encode(map[string]any{"batch": batch, "texts": texts}))
	var took struct{ CPU float64 }
	check(st.out.Decode(&took))
	st.used += time.Duration(took.CPU * float64(time.Second))
}

func (st *python) cpu() time.Duration { return st.used }
