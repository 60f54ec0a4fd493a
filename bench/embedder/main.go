// Command embedder measures the plugin onnx beside a bare loop over ONNX Runtime and beside sentence-transformers:
// the same model, texts and threads, in turns within the same run. bench/README.md says what the figures mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

const (
	callTexts = 512 // of one call, as the plugin describes
	singles   = 200 // texts whose latency is measured
)

type options struct {
	texts, python, weights, plugin string
	static, staticPlugin           string
	count, rounds, threads         int
}

func main() {
	var o options
	flag.StringVar(&o.texts, "texts", "", "file with a JSON object a line that has a \"text\" (required)")
	flag.IntVar(&o.count, "count", 2000, "how many of the texts")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds")
	flag.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "threads of everybody")
	flag.StringVar(&o.plugin, "plugin", filepath.Join("bin", "plugins", "embedsidecar-onnx"), "program of the plugin")
	flag.StringVar(&o.static, "static", "", "folder of a static model, measured in the same rounds (left out when empty)")
	flag.StringVar(&o.staticPlugin, "static-plugin", filepath.Join("bin", "plugins", "embedsidecar-static"),
		"program of its plugin")
	flag.StringVar(&o.python, "python", "", "Python with sentence-transformers (left out when empty)")
	flag.StringVar(&o.weights, "weights", "", "folder of the same model for sentence-transformers, with model.safetensors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench-embedder: error: %s\n", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone
	}
}

// A contender embeds all texts and says how long that took; cpu is the CPU time of its process so far.
type contender struct {
	name string
	run  func() (time.Duration, error)
	cpu  func() time.Duration
	pid  func() int // of its process, where its memory is shown
	rate []float64  // texts/s by round
	cost []float64  // CPU us by text
}

func measure(ctx context.Context, o options) error {
	texts, err := readTexts(o.texts, o.count)
	if err != nil {
		return err
	}
	find := config.NewFinder(os.Args[0], os.Environ())
	folder, err := find.Model(manifest.Default().Model.Default, os.Getenv("EMBEDSIDECAR_MODEL_DIR"))
	if err != nil {
		return err
	}
	library, err := find.Library(manifest.Default().Library, os.Getenv("EMBEDSIDECAR_ONNXRUNTIME"))
	if err != nil {
		return err
	}
	m, err := model.Open(ctx, model.Options{Folder: folder, Library: library, Threads: o.threads})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	plugin, err := host.New(host.Options{Path: o.plugin, Env: map[string]string{
		"EMBEDSIDECAR_PLUGIN_MODEL": folder, "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME": library,
		"EMBEDSIDECAR_PLUGIN_THREADS": fmt.Sprint(o.threads),
	}})
	if err != nil {
		return err
	}
	defer func() { _ = plugin.Close() }()
	tokenizer, err := wordpiece.Load(filepath.Join(folder, "tokenizer.json"))
	if err != nil {
		return err
	}
	fmt.Printf("%d texts, %d threads, ONNX Runtime %s\n", len(texts), o.threads, m.Describe().Library)

	// One run at a time on all threads, which sleep or spin while they wait; and a run for each thread.
	var contenders []*contender
	var first *bare
	for _, l := range []struct {
		name          string
		runs, threads int
		spin          string
	}{
		{"bare loop, one run at a time", 1, o.threads, "0"},
		{"bare loop, threads that spin", 1, o.threads, "1"},
		{"bare loop, a run for a thread", o.threads, 1, "0"},
	} {
		b, err := newBare(folder, l.runs, l.threads, l.spin, tokenizer, texts)
		if err != nil {
			return err
		}
		if b.budget, err = best(budgets, b.all); err != nil {
			return err
		}
		fmt.Printf("%s: fastest with %d tokens in a batch\n", l.name, b.budget)
		contenders = append(contenders, &contender{
			name: l.name, cpu: ownCPU, run: func() (time.Duration, error) { return b.all(b.budget) },
		})
		if first == nil {
			first = b
		}
	}
	loops := len(contenders)
	contenders = append(contenders,
		&contender{name: "plugin onnx, in this process", cpu: ownCPU, run: func() (time.Duration, error) {
			return embedAll(ctx, m.Embed, texts)
		}},
		&contender{name: "plugin onnx, over gRPC", run: func() (time.Duration, error) {
			return embedAll(ctx, plugin.Embed, texts)
		}, cpu: func() time.Duration { return ownCPU() + processCPU(plugin.Pid()) }})
	if o.python != "" {
		st, err := startPython(ctx, o, texts)
		if err != nil {
			return err
		}
		defer st.end()
		contenders = append(contenders, &contender{
			name: "sentence-transformers", cpu: func() time.Duration { return st.used },
			run: func() (time.Duration, error) { return st.encode(texts, st.batch) },
		})
	}
	if _, err := plugin.Embed(ctx, embed.Document, texts[:1]); err != nil { // starts it
		return err
	}
	static, end, err := startStatic(ctx, o, texts)
	if err != nil {
		return err
	}
	defer end()
	if err := rounds(o.rounds, slices.Concat(contenders, static), len(texts)); err != nil {
		return err
	}
	showStatic(static, contenders[loops+1])
	show(contenders, loops)
	return latency(ctx, texts[:min(singles, len(texts))], []func(string) error{
		func(text string) error {
			ids, _ := tokenizer.Encode(nil, text, maxTokens)
			return first.run(first.lanes[0], [][]int32{ids})
		},
		func(text string) error { _, err := m.Embed(ctx, embed.Document, []string{text}); return err },
		func(text string) error { _, err := plugin.Embed(ctx, embed.Document, []string{text}); return err },
	})
}

// show prints what was measured, beside the bare loops, which come first.
func show(contenders []*contender, loops int) {
	for _, c := range contenders {
		fmt.Printf("%-30s %7.1f texts/s   %6.0f us CPU/text", c.name, median(c.rate), median(c.cost))
		for _, b := range slices.Concat(contenders[:loops], contenders[loops+2:]) {
			fmt.Printf("   %.3f", median(ratios(c.rate, b.rate)))
		}
		fmt.Printf(" of the bare loops (and of sentence-transformers)\n")
	}
}

// startStatic starts the plugin static with a model, as the sidecar does; without --static there is nothing to start.
func startStatic(ctx context.Context, o options, texts []string) (list []*contender, end func(), err error) {
	if o.static == "" {
		return nil, func() {}, nil
	}
	static, err := host.New(host.Options{Path: o.staticPlugin, Env: map[string]string{
		"EMBEDSIDECAR_PLUGIN_MODEL": o.static, "EMBEDSIDECAR_PLUGIN_THREADS": fmt.Sprint(o.threads),
	}})
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = static.Close() }
	if _, err := embedAll(ctx, static.Embed, texts); err != nil { // and warms it up
		end()
		return nil, nil, err
	}
	const times = 20 // once would be over in a moment
	cpu := func() time.Duration { return ownCPU() + processCPU(static.Pid()) }
	var used time.Duration
	run := func() (time.Duration, error) {
		before, began := cpu(), time.Now()
		for range times {
			if _, err := embedAll(ctx, static.Embed, texts); err != nil {
				return 0, err
			}
		}
		used += (cpu() - before) / times
		return time.Since(began) / times, nil
	}
	one := &contender{
		name: "plugin static, over gRPC", cpu: func() time.Duration { return used }, run: run, pid: static.Pid,
	}
	return []*contender{one}, end, nil
}

func showStatic(list []*contender, onnx *contender) {
	for _, c := range list {
		fmt.Printf("%-30s %7.0f texts/s   %6.1f us CPU/text   %.0f times the plugin onnx over gRPC   %s at most\n", c.name,
			median(c.rate), median(c.cost), median(ratios(c.rate, onnx.rate)), peak(c.pid()))
	}
}

// rounds lets everybody run in turns, each round beginning with another one.
func rounds(count int, contenders []*contender, texts int) error {
	for round := range count {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			before := c.cpu()
			took, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rate = append(c.rate, float64(texts)/took.Seconds())
			c.cost = append(c.cost, float64((c.cpu()-before).Microseconds())/float64(texts))
			fmt.Fprintf(os.Stderr, "round %d: %s: %.1f texts/s, %.0f us CPU/text\n", round+1, c.name, c.rate[round],
				c.cost[round])
		}
	}
	return nil
}

// latency compares texts that come one by one: by a bare loop, by the plugin in this process and over gRPC. Each text
// goes to all, one right after the other and in turns of changing order: a busy moment of the machine hits all.
func latency(ctx context.Context, texts []string, ways []func(string) error) error {
	took := make([][]float64, len(ways)) // ms
	for round := range 4 {
		for i, text := range texts {
			for place := range ways {
				way := (round + i + place) % len(ways)
				if round%2 == 1 { // the other way round, so that nobody always comes after the same one
					way = len(ways) - 1 - way
				}
				began := time.Now()
				if err := errors.Join(ways[way](text), ctx.Err()); err != nil {
					return err
				}
				took[way] = append(took[way], float64(time.Since(began).Microseconds())/1000)
			}
		}
	}
	fmt.Printf("one text at a time, median: bare loop %.2f ms, plugin onnx %.2f ms in this process "+
		"(%.2f times, text by text), %.2f ms over gRPC (%.2f times)\n", median(took[0]), median(took[1]),
		median(ratios(took[1], took[0])), median(took[2]), median(ratios(took[2], took[0])))
	return nil
}

// embedAll embeds texts in calls of callTexts.
func embedAll(ctx context.Context, with func(context.Context, embed.Kind, []string) ([]embed.Result, error),
	texts []string,
) (time.Duration, error) {
	began := time.Now()
	for chunk := range slices.Chunk(texts, callTexts) {
		if _, err := with(ctx, embed.Document, chunk); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// best returns the value that is fastest, after a first run that warms up.
func best(values []int, run func(int) (time.Duration, error)) (fastest int, err error) {
	least := time.Duration(1<<63 - 1)
	for i, value := range append(values[:1:1], values...) {
		took, err := run(value)
		if err != nil {
			return 0, err
		}
		if i > 0 && took < least {
			fastest, least = value, took
		}
	}
	return fastest, nil
}

func readTexts(path string, count int) (texts []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--texts: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		var one struct{ Text string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return nil, fmt.Errorf("read %s, line %d: %w", path, len(texts)+1, err)
		}
		if texts = append(texts, one.Text); len(texts) == count {
			break
		}
	}
	return texts, nil
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

func ratios(a, b []float64) []float64 {
	found := make([]float64, len(a))
	for i := range a {
		found[i] = a[i] / b[i]
	}
	return found
}
