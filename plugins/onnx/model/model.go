// Package model embeds texts with a sentence encoder in ONNX format. Its input is a folder with weights, tokenizer and
// settings, verified by SHA-256. The vectors equal those of the reference implementation.
//
// Except for rounding, a text's vector does not depend on the other texts of a call. Texts are sorted by length to
// avoid padding, and padding is masked. Memory does not grow with the number of texts.
package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// A Description describes a model.
type Description struct {
	Name        string
	Fingerprint string // equal for models with equal vectors (up to rounding)
	Dims        int
	MaxTokens   int  // longer texts are cut
	Symmetric   bool // documents and queries get the same vector for the same text
	// Deterministic: a text's vector is bit for bit the same, whatever else is in the call. This is measured when the
	// model is opened.
	Deterministic bool
	Precision     string // of the weights: "fp32", "fp16", "int8"
	Library       string // version of ONNX Runtime
	Threads       int
	Runs          int    // limit of concurrent runs of the network
	Provider      string // what computes
	Sparse        bool   // vectors are pairs: embed.Pairs
	Reranks       bool   // it scores pairs of a query and a text (Rerank) and makes no vectors
	Alone         bool   // each text runs separately, because in this graph other texts would change its vector
	Settings      []embed.Setting
}

// A Model is safe for concurrent use.
type Model struct {
	about     Description
	settings  settings
	tokenizer tokenizer
	pair      pair  // of a reranker
	last      int32 // the largest token that the network knows
	network   *network
	budget    int // tokens in a piece
	turns     *turns
	lanes     *lanes
	calls     atomic.Int64
	scratch   sync.Pool // of *batch
}

// Open loads a model. It returns an error if a file does not match SHA256SUMS, or if a setting is not fully supported.
func Open(ctx context.Context, options Options) (*Model, error) {
	f, err := folder.Open(options.Folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := open(ctx, f, options)
	return m, wrap.Errorf(err, "open model %s", f.Path)
}

func open(ctx context.Context, f *folder.Folder, options Options) (*Model, error) {
	m := &Model{budget: pieceTokens}
	var err error
	if m.settings, err = readSettings(f, options.Settings); err != nil {
		return nil, err
	}
	data, ids, err := m.readTokenizer(f)
	if err != nil {
		return nil, err
	}
	g, err := readGraph(f, options.Precision)
	if err != nil {
		return nil, err
	}
	if want := options.Weights; want != "" && !strings.EqualFold(want, f.Sums[g.file]) {
		return nil, fmt.Errorf("%s has sha256 %s, and is to have %s", g.file, f.Sums[g.file], want)
	}
	if reranks(g, &m.settings) {
		if m.pair, err = readPair(data, m.settings.maxTokens); err != nil {
			return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
		}
	} else if m.tokenizer.typed() && slices.ContainsFunc(g.Inputs,
		func(in onnxfile.Port) bool { return in.Name == "token_type_ids" }) {
		return nil, fmt.Errorf("%s: tokens of other types than 0 are not supported", tokenizerFile)
	}
	if err := f.VerifyRest(g.file, tokenizerFile); err != nil {
		return nil, err
	}
	if err := loadLibrary(options.Library); err != nil {
		return nil, err
	}
	if m.network, err = newNetwork(f, g, &m.settings, options); err != nil {
		return nil, err
	}
	if err := m.network.prove(g, options); err != nil {
		return nil, errors.Join(err, m.network.close())
	}
	if m.network.provider != providerCPU {
		m.budget = acceleratorTokens
	}
	if m.network.pooling == poolSplade {
		m.budget = max(1, min(m.budget, spladeNumbers/m.network.dims))
	}
	if n := len(m.settings.weights); n > 0 && n != m.network.dims {
		return nil, errors.Join(fmt.Errorf("%s has %d weights, and vectors of documents have %d dims",
			m.settings.weightsFile, n, m.network.dims), m.network.close())
	}
	if g.Precision == onnxfile.Int8 || m.network.alone {
		// Activations are quantized with one scale per run, so a text's vector would depend on the other texts.
		m.budget = 1
	}
	m.about = m.describe(f, g, options)
	m.turns = newTurns(m.network.runs(m.about.Threads))
	m.about.Runs = m.turns.places
	// One more for a small call, and one for vectors made after a run.
	m.lanes = newLanes(m.network, m.turns.places+2, max(m.budget, m.settings.maxTokens))
	var mixes bool
	if m.about.Deterministic, mixes, err = m.warmUp(ctx); err == nil && mixes && m.budget > 1 {
		// The graph masks neither padding nor other texts; for example, it has no attention_mask.
		m.budget = 1
		m.about.Deterministic, mixes, err = m.warmUp(ctx)
	}
	if err == nil {
		err = m.checkFinite(ctx, ids)
	}
	if _, wrong := errors.AsType[*WrongError](err); err != nil && !wrong && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w (%s has tokens up to %d)", g.file, err, tokenizerFile, m.last)
	}
	if err == nil && mixes {
		err = errors.New("the same text gets different vectors from one run to another")
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.about.Alone = m.budget == 1
	return m, nil
}

// describe returns the description known before the first run.
func (m *Model) describe(f *folder.Folder, g *graph, options Options) Description {
	name := cmp.Or(g.Metadata["name"], filepath.Base(f.Path))
	return Description{
		Name: name, Fingerprint: fingerprint(f, g, m.settings, m.network.dims),
		Dims:     m.settings.kept(m.settings.width(m.network.dims)),
		Provider: m.network.provider, Sparse: m.network.pooling == poolSplade,
		Reranks:   m.network.pooling == poolRerank,
		MaxTokens: m.settings.maxTokens, Precision: g.Precision, Library: ort.GetVersion(), Threads: threads(options),
		Symmetric: m.settings.prefixes[embed.Document] == m.settings.prefixes[embed.Query] && !m.settings.tasked &&
			m.settings.weights == nil,
		Settings: m.settings.said(),
	}
}

// readTokenizer reads tokenizer.json, modified by other files, and returns it with the tokens of a text.
func (m *Model) readTokenizer(f *folder.Folder) (data []byte, ids []int32, err error) {
	data, err = f.Read(tokenizerFile, maxTokenizerBytes)
	if err != nil {
		return nil, nil, err
	}
	if data, err = m.settings.tokenizer.apply(data); err != nil {
		return nil, nil, err
	}
	if m.tokenizer, err = newTokenizer(data, &m.settings); err != nil {
		return nil, nil, err
	}
	ids, _, err = m.tokenizer.encode(nil, "a")
	if err = errors.Join(err, m.settings.tokenizer.checkEnds(ids, data)); err != nil {
		return nil, nil, err
	}
	if m.last = m.tokenizer.maxID(); m.settings.vocab > 0 && int(m.last) >= m.settings.vocab {
		if added(data, m.settings.vocab) <= int(m.last)-m.settings.vocab {
			return nil, nil, fmt.Errorf("%s has tokens up to %d, the model knows %d (vocab_size of config.json)", tokenizerFile,
				m.last, m.settings.vocab)
		}
		// Added tokens may be outside the model's table, such as Gemma's image token, which does not occur in texts.
		m.last = int32(m.settings.vocab) - 1
	}
	if m.tokenizer.around() >= m.settings.maxTokens {
		return nil, nil, fmt.Errorf("a limit of %d tokens leaves no room for text", m.settings.maxTokens)
	}
	return data, ids, nil
}

// runs returns the limit of concurrent runs, and the size in tokens of a small call that may run in addition.
func (n *network) runs(threads int) (places, small int) {
	places = max(1, threads/4) // one run keeps up to four threads busy with the matrices of a small model
	if n.narrow != nil {
		places = threads
	}
	if n.provider == providerCPU {
		small = smallCall
	}
	return places, small
}

// Describe returns the model's description.
func (m *Model) Describe() Description { return m.about }

// Close frees the memory of the network. No call may be running or follow.
func (m *Model) Close() error {
	m.lanes.close()
	return wrap.Errorf(m.network.close(), "close model")
}

// run waits for a turn, runs one piece through the network and makes vectors of its output. whole: the piece is the
// whole call.
func (m *Model) run(ctx context.Context, came, left int, whole bool, kind embed.Kind, texts [][]int32, width int,
	vector func(int, []float32),
) error {
	mine, err := m.turns.take(ctx, came, left)
	if err != nil {
		return err
	}
	l := m.lanes.take()
	defer m.lanes.give(l)
	session := m.network.shared()
	if whole && mine.alone {
		session = m.network.wide
	}
	err = l.run(session, kind, texts, width)
	if m.network.narrow == nil { // the next piece can run while this goroutine makes vectors
		m.turns.give(mine)
	} else {
		defer m.turns.give(mine)
	}
	if err != nil {
		return err
	}
	l.vectors(texts, width, vector)
	return nil
}
