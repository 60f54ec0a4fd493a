// Package model embeds texts with a sentence encoder in ONNX form: a folder with weights, tokenizer and settings, verified
// by sha256, in; vectors as the reference implementation computes them out.
//
// A text's vector does not depend on the texts around it, beyond rounding: texts are sorted by length so that almost nothing
// is padded, and what is padded is masked. Memory does not grow with the number of texts a model has seen.
package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

// MaxTokensLimit bounds the token limit that a model folder may set.
const MaxTokensLimit = 8192

// Options say what to open.
type Options struct {
	Folder  string // model folder: model.onnx, tokenizer.json, settings, SHA256SUMS
	Library string // shared library of ONNX Runtime, see FindLibrary
	Threads int    // threads that compute; 0: as many as there are CPUs for this process
}

// A Description is what a model is.
type Description struct {
	Name        string
	Fingerprint string // equal for models that give equal vectors (up to rounding)
	Dims        int
	MaxTokens   int  // longer texts are cut
	Symmetric   bool // documents and queries get the same vector for the same text
	// Deterministic: a text's vector is the same, bit for bit, whatever else is in the call. Measured when the model is opened.
	Deterministic bool
	Precision     string // of the weights: "fp32", "fp16", "int8"
	Library       string // version of ONNX Runtime
	Threads       int
}

// A Model is safe for concurrent use.
type Model struct {
	about     Description
	settings  settings
	tokenizer *wordpiece.Tokenizer
	network   *network
	budget    int // tokens in a piece
	turns     *turns
	lanes     chan *lane // as many as there are turns
	calls     atomic.Int64
	scratch   sync.Pool // of *batch
}

// Open loads a model. It fails when a file of the folder is not what SHA256SUMS says, and when a setting is one that this
// program would not follow exactly.
func Open(ctx context.Context, options Options) (*Model, error) {
	f, err := openFolder(options.Folder)
	if err != nil {
		return nil, err
	}
	defer f.close()
	m, err := open(ctx, f, options)
	if err != nil {
		return nil, fmt.Errorf("open model %s: %w", f.path, err)
	}
	return m, nil
}

func open(ctx context.Context, f *folder, options Options) (*Model, error) {
	m := &Model{budget: pieceTokens}
	var err error
	if m.settings, err = readSettings(f); err != nil {
		return nil, err
	}
	data, err := f.read(tokenizerFile, maxTokenizerBytes)
	if err != nil {
		return nil, err
	}
	if m.tokenizer, err = wordpiece.New(data); err != nil {
		return nil, fmt.Errorf("read %s: %w", tokenizerFile, err)
	}
	if last := m.tokenizer.MaxID(); m.settings.vocab > 0 && int(last) >= m.settings.vocab {
		return nil, fmt.Errorf("%s has tokens up to %d, the model knows %d", tokenizerFile, last, m.settings.vocab)
	}
	if m.tokenizer.Around() >= m.settings.maxTokens {
		return nil, fmt.Errorf("a limit of %d tokens leaves no room for text", m.settings.maxTokens)
	}
	g, err := readGraph(f)
	if err != nil {
		return nil, err
	}
	if err := f.verifyRest(graphFile, tokenizerFile); err != nil {
		return nil, err
	}
	if err := loadLibrary(options.Library); err != nil {
		return nil, err
	}
	if m.network, err = newNetwork(f, g, &m.settings, threads(options)); err != nil {
		return nil, err
	}
	if g.precision == "int8" {
		// The scale of activations is that of everything in a run, so a text's vector would depend on its neighbours.
		m.budget = 1
	}
	name := g.metadata["name"]
	if name == "" {
		name = filepath.Base(f.path)
	}
	m.about = Description{
		Name: name, Fingerprint: fingerprint(f, g, m.settings, m.network.dims), Dims: m.network.dims,
		MaxTokens: m.settings.maxTokens, Precision: g.precision, Library: ort.GetVersion(), Threads: threads(options),
		Symmetric: m.settings.prefixes[embed.Document] == m.settings.prefixes[embed.Query],
	}
	places := lanes(m.about.Threads)
	m.turns, m.lanes = newTurns(places), make(chan *lane, places)
	for range places {
		m.lanes <- newLane(m.network, max(pieceTokens, m.settings.maxTokens))
	}
	if m.about.Deterministic, err = m.warmUp(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func threads(options Options) int {
	if options.Threads > 0 {
		return options.Threads
	}
	return usableCPUs()
}

// readGraph reads what model.onnx says of itself and makes sure that all weights are inside the folder and listed.
func readGraph(f *folder) (*graph, error) {
	data, err := f.read(graphFile, maxGraphBytes)
	if err != nil {
		return nil, err
	}
	g, err := parseGraph(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", graphFile, err)
	}
	for _, name := range g.external {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s: weights in %q are outside the model folder: refused", graphFile, name)
		}
		if err := f.verify(filepath.Clean(name)); err != nil {
			return nil, fmt.Errorf("%s: weights in another file: %w", graphFile, err)
		}
	}
	return g, nil
}

// newNetwork makes the session. It changes the settings' pooling when the graph does it.
func newNetwork(f *folder, g *graph, s *settings, threads int) (*network, error) {
	n := &network{}
	var inputs []string
	for _, in := range g.inputs {
		fill, ok := fills[in.name]
		if !ok || in.elements != elementInt64 {
			return nil, fmt.Errorf("%s: input %q (element type %d) is not supported", graphFile, in.name, in.elements)
		}
		inputs, n.fill = append(inputs, in.name), append(n.fill, fill)
	}
	output, err := chooseOutput(g)
	if err != nil {
		return nil, err
	}
	n.pooling = s.pooling
	if len(output.dims) == 2 {
		n.pooling, s.pooling = poolGraph, poolGraph
	}
	n.dims = int(output.dims[len(output.dims)-1])
	if n.dims <= 0 {
		n.dims = s.hidden
	}
	if n.dims < 1 || n.dims > 16_000 {
		return nil, fmt.Errorf("%s: vectors of %d dims are not supported", graphFile, n.dims)
	}
	before, err := os.Stat(filepath.Join(f.path, graphFile))
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	options, err := sessionOptions(threads)
	if err != nil {
		return nil, err
	}
	defer func() { _ = options.Destroy() }()
	// The file was held in memory to be verified; the library reads it for itself.
	debug.FreeOSMemory()
	n.session, err = ort.NewDynamicAdvancedSession(filepath.Join(f.path, graphFile), inputs, []string{output.name}, options)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", graphFile, err)
	}
	after, err := os.Stat(filepath.Join(f.path, graphFile))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) || before.Size() != after.Size() {
		return nil, errors.Join(fmt.Errorf("load %s: it was changed meanwhile", graphFile), err, n.session.Destroy())
	}
	return n, nil
}

// chooseOutput returns the vectors of whole texts if the graph has them, or else the vectors of tokens.
func chooseOutput(g *graph) (port, error) {
	for _, dims := range []int{2, 3} {
		for _, name := range []string{"sentence_embedding", "last_hidden_state", "token_embeddings"} {
			for _, out := range g.outputs {
				if out.name == name && len(out.dims) == dims && out.elements == elementFloat32 {
					return out, nil
				}
			}
		}
	}
	return port{}, fmt.Errorf("%s: no float32 output named sentence_embedding, last_hidden_state or token_embeddings", graphFile)
}

func sessionOptions(threads int) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("make session options: %w", err)
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(threads),
		options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
		// A pattern is kept for each shape ever seen, and here almost every run has a shape of its own.
		options.SetMemPattern(false),
		// Waiting threads sleep instead of spinning: the CPUs are the database's too.
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set session options: %w", err), options.Destroy())
	}
	return options, nil
}

// lanes returns how many runs may be under way at once. One keeps up to four threads busy with the matrices of a small model.
func lanes(threads int) int { return max(1, threads/4) }

// Describe returns what the model is.
func (m *Model) Describe() Description { return m.about }

// Close frees the memory of the network. No call may be running, and none may follow.
func (m *Model) Close() error {
	for range cap(m.lanes) {
		(<-m.lanes).close()
	}
	if err := m.network.session.Destroy(); err != nil {
		return fmt.Errorf("close model: %w", err)
	}
	return nil
}

// run waits for a turn and sends one piece through the network.
func (m *Model) run(ctx context.Context, came, left int, texts [][]int32, width int, vector func(int, []float32)) error {
	if err := m.turns.take(ctx, came, left); err != nil {
		return err
	}
	defer m.turns.give()
	l := <-m.lanes
	defer func() { m.lanes <- l }()
	return l.run(texts, width, vector)
}
