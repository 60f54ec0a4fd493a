package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// tester holds the plugin under test.
type tester struct {
	opts    Options
	said    *recorder
	run     *host.Inspection  // nil: not running
	started bool              // it has started once
	about   embed.Description // of the first start
	// symmetric is part of the model's description that embed.Description lacks.
	symmetric bool
	usual     [][]float32 // vectors of usualTexts, each embedded alone
}

// check runs one check and returns its outcome.
func (t *tester) check(ctx context.Context, c check) Check {
	began := time.Now()
	f := t.outcome(ctx, c)
	f.ID, f.Title, f.Seconds = c.id, c.title, time.Since(began).Seconds()
	return f
}

// outcome runs a check and returns its outcome, or why it was abandoned.
func (t *tester) outcome(ctx context.Context, c check) (f Check) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case abandoned:
			advice := c.advice
			var own *callError
			if errors.As(why.err, &own) && own.advice != "" {
				advice = own.advice
			}
			f = fail(advice, "%s", why.err)
		default:
			panic(why)
		}
	}()
	return c.run(ctx, t)
}

// abandoned is the panic value of abandon.
type abandoned struct{ err error }

// abandon ends a check, as FailNow ends a test. Call it only from the goroutine of the check.
func abandon(err error) { panic(abandoned{err}) }

// must abandons the check if a call failed.
func must[T any](value T, err error) T {
	if err != nil {
		abandon(err)
	}
	return value
}

// plugin returns the running plugin. It starts the plugin if it does not run.
func (t *tester) plugin(ctx context.Context) (*host.Inspection, error) {
	if t.run != nil {
		select {
		case <-t.run.Gone():
			t.stop()
		default:
			return t.run, nil
		}
	}
	run, err := host.Inspect(ctx, host.Options{
		Path: t.opts.Path, Args: t.opts.Args, Env: maps.Clone(t.opts.Env), Model: t.opts.Model, TempDir: t.opts.TempDir,
		Log: slog.New(t.said), CallTimeout: t.opts.CallTimeout,
	})
	if err != nil {
		return nil, err
	}
	t.run = run
	return run, nil
}

// stop ends the plugin.
func (t *tester) stop() {
	if t.run != nil {
		_ = t.run.Close() // the next host removes a leftover folder of sockets
		t.run = nil
	}
}

// Verdict is the result of a check.
type Verdict string

// The verdicts, from good to bad.
const (
	Pass Verdict = "pass"
	Warn Verdict = "warn" // the sidecar copes, but users may notice
	Fail Verdict = "fail" // the contract is broken
)

func worse(a, b Verdict) Verdict {
	order := []Verdict{Pass, Warn, Fail}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// Check is the outcome of one check.
type Check struct {
	ID       string  `json:"id"`
	Title    string  `json:"title"` // what must hold
	Verdict  Verdict `json:"verdict"`
	Measured string  `json:"measured"`
	Advice   string  `json:"advice,omitempty"` // what to do; "" if it passed
	Seconds  float64 `json:"seconds"`
}

func pass(measured string, args ...any) Check {
	return Check{Verdict: Pass, Measured: fmt.Sprintf(measured, args...)}
}

func warn(advice, measured string, args ...any) Check {
	return Check{Verdict: Warn, Measured: fmt.Sprintf(measured, args...), Advice: advice}
}

func fail(advice, measured string, args ...any) Check {
	return Check{Verdict: Fail, Measured: fmt.Sprintf(measured, args...), Advice: advice}
}

// check is one rule of the contract.
type check struct {
	id    string
	scope scope
	run   func(context.Context, *tester) Check
	title string
	// advice is used if a call fails during the check.
	advice string
}

// scope says which plugins a check applies to.
type scope int

const (
	ofVectors scope = iota // models that make vectors
	ofAny                  // rerankers, too
	bare                   // any plugin, and the check itself starts the program
)

// Options say what to test and how long.
type Options struct {
	Path string            // the plugin's file
	Args []string          // command line arguments
	Env  map[string]string // its environment, in addition to the usual variables
	// Model is the one to test. Empty: the plugin's only one.
	Model string
	// Only are the ids of the checks to run. Empty: all.
	Only []string
	// Soak is how long memory is measured under load; throughput is measured for a part of it. Default 10 s.
	Soak time.Duration
	// CallTimeout is how long a call may take. Default: host.DefaultCallTimeout.
	CallTimeout func(texts, bytes int) time.Duration
	// Patience multiplies the time limits for answers, restarts and exits, for busy machines. Default 1.
	Patience int
	// TempDir is the folder for sockets; see host.Options.
	TempDir string
	// Progress is called after every check. May be nil.
	Progress func(Check)
}

// recorder records the plugin's output, which comes through the host's log, and its error messages.
type recorder struct {
	mu    sync.Mutex
	leaks []string // where a text was quoted
	lines int
}

var _ slog.Handler = (*recorder)(nil)

// heard records a message and where it occurred.
func (r *recorder) heard(where, said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines++
	if strings.Contains(said, canary) {
		r.leaks = append(r.leaks, where)
	}
}

// Enabled implements slog.Handler.
func (*recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	if record.Message == "plugin output" {
		var said []string
		record.Attrs(func(a slog.Attr) bool {
			said = append(said, a.String()) // its line, or the fields of a structured line
			return true
		})
		r.heard("its output", strings.Join(said, " "))
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(string) slog.Handler { return r }

// canary begins and ends every text, so that a quoted text can be detected anywhere.
const canary = "Quetzalcoatlus"

var words = strings.Fields(`the a of river and mountain green slow engine table window people letter morning invoice password
	account winter bread small old bright carries reads opens under over between second third city harbour ship yellow
	paper
	machine question answer doctor garden music silence number seven eleven never always because although`)

// sentence makes an ordinary text of length words; the same seed makes the same text.
func sentence(seed uint64, length int) string {
	r := rand.New(rand.NewPCG(seed, 0x5eed)) //nolint:gosec // texts are no secret
	b := []string{canary}
	for range length {
		b = append(b, words[r.IntN(len(words))])
	}
	return strings.Join(append(b, fmt.Sprint(seed), canary), " ")
}

// sentences are n different texts of usual, mixed lengths.
func sentences(seed uint64, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = sentence(seed*1_000_003+uint64(i), 3+int(seed+uint64(i)*7)%40)
	}
	return list
}

// usualTexts are the texts for comparisons of answers, of different lengths.
var usualTexts = sentences(1, 12)

// long makes a text of words with exactly the given number of bytes.
func long(bytes int) string {
	piece := strings.Join(words, " ") + " "
	b := strings.Repeat(piece, bytes/len(piece)+1)
	b = canary + " " + b
	return b[:bytes-len(canary)-1] + " " + canary
}

// strange are valid UTF-8 texts that often cause bugs. They are sent between canaries.
var strange = []struct{ what, text string }{
	{"NUL", "before\x00after"},
	{"control characters", "\x01\x02\x1b[31mred\x7f"},
	{"a byte order mark", "\ufeffmarked"},
	{"combining marks", "e\u0301 a\u0308\u0323 Z\u0351\u036b\u0343\u036a"},
	{"right to left", "שלום עליכם والسلام \u202etfel"},
	{"no spaces", "東京都は日本の首都である。ภาษาไทยไม่มีช่องว่าง"},
	{"emoji joined by zero width joiners", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽"},
	{"outside the basic plane", "𝕱𝖗𝖆𝖐𝖙𝖚𝖗 𐍈 🜚 \U0010fffd"},
	{"noncharacters and private use", "\uffff \ufffe \ue000 \ufffd"},
	{"line and paragraph separators", "a\u2028b\u2029c\r\nd\u0085e\u000bf"},
	{"zero width and soft hyphen", "a\u200bb\u200c\u200dc\u2060d\u00ade"},
	{"case that changes length", "İstanbul ẞ ŉ ǰ ﬃ"},
	{"one long word", strings.Repeat("a", 5000)},
	{"one mark 500 times", "o" + strings.Repeat("\u0300", 500)},
	{"markup and escapes", `<script>&amp;</script> \u0000 %s %n ${HOME} '; --`},
	{"special tokens as text", "[CLS] [SEP] [PAD] [UNK] [MASK] <s> </s> <pad> <|endoftext|> <unk>"},
}

// strangeTexts are the texts of strange between canaries.
var strangeTexts = lists.Map(strange, func(s struct{ what, text string }) string {
	return canary + " " + s.text + " " + canary
})

// suspect finds the strange text that makes a call fail.
func suspect(whole error, call func(texts []string) error) error {
	for i, text := range strangeTexts {
		if err := call([]string{text}); err != nil {
			return fmt.Errorf("a text with %s: %w", strange[i].what, err)
		}
	}
	return whole
}

// nothing are texts without content. Models differ in which of them they call empty.
var nothing = []string{"", " ", "\n\t \r\n", "\u00a0\u2003", "\u200b"}
