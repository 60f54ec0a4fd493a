// Package model embeds texts with a sentence encoder in ONNX form: a folder with weights, tokenizer and settings,
// verified by sha256, in; vectors as the reference implementation computes them out.
//
// A text's vector does not depend on the texts around it, beyond rounding: texts are sorted by length so that almost
// nothing is padded, and what is padded is masked. Memory does not grow with the number of texts a model has seen.
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

// A Description is what a model is.
type Description struct {
	Name        string
	Fingerprint string // equal for models that give equal vectors (up to rounding)
	Dims        int
	MaxTokens   int  // longer texts are cut
	Symmetric   bool // documents and queries get the same vector for the same text
	// Deterministic: a text's vector is the same, bit for bit, whatever else is in the call. Measured when the model is
	// opened.
	Deterministic bool
	Precision     string // of the weights: "fp32", "fp16", "int8"
	Library       string // version of ONNX Runtime
	Threads       int
	Runs          int    // of the network that may be under way at a time
	Provider      string // what computes
	Sparse        bool   // vectors are pairs: embed.Pairs
	Reranks       bool   // it scores pairs of a query and a text (Rerank), and makes no vectors
	Alone         bool   // each text is run by itself: the graph would let its neighbours into its vector
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

// Open loads a model. It fails when a file of the folder is not what SHA256SUMS says, and when a setting is one that
// this program would not follow exactly.
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
		// The scale of activations is that of everything in a run, so a text's vector would depend on its neighbours.
		m.budget = 1
	}
	m.about = m.describe(f, g, options)
	m.turns = newTurns(m.network.runs(m.about.Threads))
	m.about.Runs = m.turns.places
	// One beside the places, and one for vectors that are made when a run is over.
	m.lanes = newLanes(m.network, m.turns.places+2, max(m.budget, m.settings.maxTokens))
	var mixes bool
	if m.about.Deterministic, mixes, err = m.warmUp(ctx); err == nil && mixes && m.budget > 1 {
		// Neither padding nor neighbours are masked: the graph takes no attention_mask, say.
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

// describe returns what is known of the model before its first run.
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

// readTokenizer reads tokenizer.json, as other files have it changed, and returns it with the tokens of a text.
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
		// Added tokens may have no place in the model's table, as that of an image in Gemma's: texts do not hold them.
		m.last = int32(m.settings.vocab) - 1
	}
	if m.tokenizer.around() >= m.settings.maxTokens {
		return nil, nil, fmt.Errorf("a limit of %d tokens leaves no room for text", m.settings.maxTokens)
	}
	return data, ids, nil
}

// runs returns how many runs may be under way at once, and how many tokens may be left of a call that runs beside them.
func (n *network) runs(threads int) (places, small int) {
	places = max(1, threads/4) // one keeps up to four threads busy with the matrices of a small model
	if n.narrow != nil {
		places = threads
	}
	if n.provider == providerCPU {
		small = smallCall
	}
	return places, small
}

// Describe returns what the model is.
func (m *Model) Describe() Description { return m.about }

// Close frees the memory of the network. No call may be running, and none may follow.
func (m *Model) Close() error {
	m.lanes.close()
	return wrap.Errorf(m.network.close(), "close model")
}

// run waits for a turn, sends one piece through the network and makes vectors of what comes out. whole says that the
// piece is all of its call.
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
	if m.network.narrow == nil { // the next piece can run on all threads while one of them makes vectors
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
