// Command embedder measures the plugin onnx beside a bare loop over ONNX Runtime and beside sentence-transformers:
// the same model, texts and threads, in turns within the same run. bench/README.md says what the figures mean.
package main

import (
	"cmp"
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

// budgets are the batch sizes, in tokens, that the bare loop may choose from; batches those of sentence-transformers,
// in texts.
var (
	budgets = []int{256, 512, 1024, 2048, 4096}
	batches = []int{4, 8, 16, 32}
)

const (
	callTexts = 512 // of one call, as the plugin describes
	sweep     = 400 // texts that the best batch is chosen with
	singles   = 200 // texts whose latency is measured
)

type options struct {
	texts, python, weights, plugin string
	count, rounds, threads         int
}

func main() {
	var o options
	flag.StringVar(&o.texts, "texts", "", "file with a JSON object a line that has a \"text\" (required)")
	flag.IntVar(&o.count, "count", 2000, "how many of the texts")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds")
	flag.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "threads of everybody")
	flag.StringVar(&o.plugin, "plugin", filepath.Join("bin", "plugins", "embedsidecar-onnx"), "program of the plugin")
	flag.StringVar(&o.python, "python", "", "Python with sentence-transformers (left out when empty)")
	flag.StringVar(&o.weights, "weights", "", "folder of the same model for sentence-transformers, with model.safetensors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench-embedder: error: %s\n", err)
		os.Exit(1)
	}
}

// A contender embeds all texts and says how long that took; cpu is the CPU time of its process so far.
type contender struct {
	name string
	run  func() (time.Duration, error)
	cpu  func() time.Duration
	rate []float64 // texts/s by round
	cost []float64 // CPU us by text
}

func measure(ctx context.Context, o options) error {
	texts, err := readTexts(o.texts, o.count)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	find := config.NewFinder(program, os.Environ())
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
	// The bare loops: one run at a time on all threads, threads that sleep or spin while they wait; and a run for each
	// thread.
	loops := []struct {
		name          string
		runs, threads int
		spin          bool
		*bare
	}{
		{name: "bare loop, one run at a time", runs: 1, threads: o.threads},
		{name: "bare loop, threads that spin", runs: 1, threads: o.threads, spin: true},
		{name: "bare loop, a run for a thread", runs: o.threads, threads: 1},
	}
	for i := range loops {
		l := &loops[i]
		if l.bare, err = newBare(folder, l.runs, l.threads, l.spin, texts); err != nil {
			return err
		}
	}
	plugin, err := host.New(host.Options{Path: o.plugin, Env: map[string]string{
		"EMBEDSIDECAR_PLUGIN_MODEL": folder, "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME": library,
		"EMBEDSIDECAR_PLUGIN_THREADS": fmt.Sprint(o.threads),
	}})
	if err != nil {
		return err
	}
	defer func() { _ = plugin.Close() }()

	fmt.Printf("%d texts, %d threads, ONNX Runtime %s\n", len(texts), o.threads, m.Describe().Library)
	inside := &contender{name: "plugin onnx, in this process", cpu: ownCPU, run: func() (time.Duration,
		error,
	) {
		return embedAll(ctx, m.Embed, texts)
	}}
	over := &contender{name: "plugin onnx, over gRPC", cpu: func() time.Duration {
		return ownCPU() +
			processCPU(plugin.Pid())
	}, run: func() (time.Duration, error) { return embedAll(ctx, plugin.Embed, texts) }}
	var contenders []*contender
	for _, l := range loops {
		l.budget, err = best(budgets, func(budget int) (time.Duration, error) { l.budget = budget; return l.all() })
		if err != nil {
			return err
		}
		fmt.Printf("%s: fastest with %d tokens in a batch\n", l.name, l.budget)
		contenders = append(contenders, &contender{name: l.name, cpu: ownCPU, run: l.all})
	}
	bareLoops := contenders
	contenders = append(contenders, inside, over)
	if o.python != "" {
		st, err := startST(ctx, o)
		if err != nil {
			return err
		}
		defer st.end()
		batch, err := best(batches, func(batch int) (time.Duration, error) {
			return st.encode(texts[:min(sweep, len(texts))],
				batch)
		})
		if err != nil {
			return err
		}
		fmt.Printf("sentence-transformers is fastest with %d texts in a batch\n", batch)
		contenders = append(contenders, &contender{
			name: "sentence-transformers", cpu: st.cpu, run: func() (time.Duration, error) { return st.encode(texts, batch) },
		})
	}
	if _, err := embedAll(ctx, plugin.Embed, texts[:8]); err != nil { // starts it
		return err
	}
	if err := rounds(o.rounds, contenders, len(texts)); err != nil {
		return err
	}
	tell(contenders, bareLoops, inside, over, o.python != "")
	work := m.Work()
	fmt.Printf("padding: %.2f %% of the tokens (%d runs)\n", 100*float64(work.Padding)/float64(work.Tokens), work.Runs)
	return latency(ctx, loops[0].bare, m, plugin, folder, texts)
}

// tell prints how fast each was, beside the bare loops and, if it ran (it is the last), sentence-transformers.
func tell(contenders, bareLoops []*contender, inside, over *contender, python bool) {
	fastest := slices.MaxFunc(bareLoops, func(a, b *contender) int { return cmp.Compare(median(a.rate), median(b.rate)) })
	for _, c := range contenders {
		fmt.Printf("%-30s %7.1f texts/s   %6.0f us CPU/text", c.name, median(c.rate), median(c.cost))
		for _, b := range bareLoops {
			fmt.Printf("   %.3f", median(ratios(c.rate, b.rate)))
		}
		fmt.Printf(" of the bare loops\n")
	}
	fmt.Printf("beside the fastest, %q: %.3f in this process, %.3f over gRPC\n", fastest.name,
		median(ratios(inside.rate, fastest.rate)), median(ratios(over.rate, fastest.rate)))
	if python {
		st := contenders[len(contenders)-1]
		fmt.Printf("plugin onnx / sentence-transformers: %.2f in this process, %.2f over gRPC (texts/s), %.2f (CPU)\n",
			median(ratios(inside.rate, st.rate)), median(ratios(over.rate, st.rate)), median(ratios(st.cost, inside.cost)))
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

// latency compares texts that come one by one.
func latency(ctx context.Context, plain *bare, m *model.Model, plugin *host.Host, folder string, texts []string) error {
	tokenizer, err := wordpiece.Load(filepath.Join(folder, "tokenizer.json"))
	if err != nil {
		return err
	}
	texts = texts[:min(singles, len(texts))]
	timed := func(do func() error) (float64, error) {
		began := time.Now()
		err := do()
		return float64(time.Since(began).Microseconds()) / 1000, err
	}
	// Each text goes to all three, one right after the other and in turns of changing order: a busy moment of the
	// machine hits all.
	ways := [3]func(string) (float64, error){
		func(text string) (float64, error) {
			ids, _ := tokenizer.Encode(nil, text, maxTokens)
			return timed(func() error { return plain.run(plain.lanes[0], [][]int32{ids}) })
		},
		func(text string) (float64, error) {
			return timed(func() error { _, err := m.Embed(ctx, embed.Document, []string{text}); return err })
		},
		func(text string) (float64, error) {
			return timed(func() error { _, err := plugin.Embed(ctx, embed.Document, []string{text}); return err })
		},
	}
	var took [3][]float64 // ms
	for round := range 4 {
		for i, text := range texts {
			for place := range ways {
				way := (round + i + place) % len(ways)
				if round%2 == 1 { // the other way round, so that nobody always comes after the same one
					way = len(ways) - 1 - way
				}
				ms, err := ways[way](text)
				if err != nil {
					return err
				}
				took[way] = append(took[way], ms)
			}
		}
	}
	fmt.Printf("one text at a time, median: bare loop %.2f ms, plugin onnx %.2f ms in this process (%.2f times, text by text), %.2f ms over gRPC (%.2f times)\n",
		median(took[0]), median(took[1]), median(ratios(took[1], took[0])), median(took[2]), median(ratios(took[2], took[0])))
	beside, err := besideBulk(ctx, plugin, texts, func() ([]float64, error) {
		var took []float64
		for _, text := range texts {
			ms, err := ways[2](text)
			if err != nil {
				return nil, err
			}
			took = append(took, ms)
		}
		return took, nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("the same over gRPC while another call of %d texts is always under way, median: %.2f ms\n", len(texts),
		median(beside))
	return nil
}

// besideBulk measures while large calls follow each other.
func besideBulk(ctx context.Context, plugin *host.Host, texts []string, measure func() ([]float64, error)) ([]float64,
	error,
) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := plugin.Embed(ctx, embed.Document, texts); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	took, err := measure()
	stop()
	return took, errors.Join(err, <-ended)
}

// embedAll embeds texts in calls of the size that the plugin asks for.
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
func best(values []int, run func(int) (time.Duration, error)) (int, error) {
	if _, err := run(values[0]); err != nil {
		return 0, err
	}
	fastest, least := 0, time.Duration(1<<62)
	for _, value := range values {
		took, err := run(value)
		if err != nil {
			return 0, err
		}
		if took < least {
			fastest, least = value, took
		}
	}
	return fastest, nil
}

func readTexts(path string, count int) ([]string, error) {
	if path == "" {
		return nil, errors.New("--texts is missing")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []string
	for line := range strings.Lines(string(data)) {
		var one struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return nil, fmt.Errorf("read %s, line %d: %w", path, len(texts)+1, err)
		}
		texts = append(texts, one.Text)
		if len(texts) == count {
			break
		}
	}
	return texts, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func ratios(a, b []float64) []float64 {
	found := make([]float64, len(a))
	for i := range a {
		found[i] = a[i] / b[i]
	}
	return found
}
