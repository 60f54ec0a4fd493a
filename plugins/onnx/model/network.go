package model

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// A graph is the metadata of an ONNX file in a folder.
type graph struct {
	*onnxfile.Graph

	file  string // in the folder
	bytes int64  // of the file and its weight files
}

// maxTwice is the largest size of a model that holds its weights twice; see network. In a larger one, threads wait
// little for each other, and memory matters more.
const maxTwice = 256 << 20

// maxNarrow is the largest token limit of a model that gets one run per thread. The memory of a run grows with the
// square of the tokens: with 12 heads, each attention matrix takes 12 MiB at 512 tokens and 3 GiB at 8192. So many
// concurrent runs suit only short texts.
const maxNarrow = 512

// readGraph reads the metadata of the graph of a precision, and checks that all weights are in the folder and listed.
func readGraph(f *folder.Folder, precision string) (*graph, error) {
	name := graphFile
	if _, listed := f.Sums[int8File]; listed && precision == onnxfile.Int8 {
		name = int8File
	}
	data, err := f.Read(name, maxGraphBytes)
	if err != nil {
		return nil, err
	}
	parsed, err := onnxfile.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	g := &graph{parsed, name, int64(len(data))}
	switch {
	case precision == "" || precision == g.Precision:
	case precision == onnxfile.Int8 && name == graphFile:
		return nil, fmt.Errorf("precision int8: there is no %s, and %s holds %s weights; embedsidecar models import --int8 makes it", int8File, name, g.Precision)
	default:
		return nil, fmt.Errorf("precision %q: %s holds %s weights", precision, name, g.Precision)
	}
	slices.Sort(g.External) // each tensor names its file
	g.External = slices.Compact(g.External)
	for _, name := range g.External {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s: weights in %q are outside the model folder: refused", g.file, name)
		}
		if err := f.Verify(filepath.Clean(name)); err != nil {
			return nil, fmt.Errorf("%s: weights in another file: %w", g.file, err)
		}
		info, err := os.Stat(filepath.Join(f.Path, name))
		if err != nil {
			return nil, fmt.Errorf("%s: weights in another file: %w", g.file, err)
		}
		g.bytes += info.Size()
	}
	return g, nil
}

// kept returns the number of dims to keep.
func (s *settings) kept(dims int) int {
	if s.keep > 0 && s.pooling != poolSplade {
		return min(s.keep, dims)
	}
	return dims
}

// width returns the dims of a vector after the dense layers, for the network's dims.
func (s *settings) width(dims int) int {
	if len(s.dense) > 0 {
		return s.dense[len(s.dense)-1].out
	}
	return dims
}

// newNetwork makes the sessions. It changes the settings' pooling if the graph includes it.
func newNetwork(f *folder.Folder, g *graph, s *settings, o Options) (*network, error) {
	n := &network{}
	var inputs []string
	for _, port := range g.Inputs {
		in, err := newInput(port, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.file, err)
		}
		n.alone = n.alone || in.isAlone()
		s.tasked = s.tasked || in.tasks != nil
		inputs, n.inputs = append(inputs, in.Name), append(n.inputs, in)
	}
	if !slices.Contains(inputs, "input_ids") {
		return nil, fmt.Errorf("%s: %w", g.file, errNoInput)
	}
	output, err := chooseOutput(g, s)
	if err != nil {
		return nil, err
	}
	switch {
	case reranks(g, s):
		s.pooling, s.dense, s.layerNorm, s.normalize, s.keep = poolRerank, nil, nil, false, 0
	case len(output.Dims) == 2: // the graph includes the pooling
		if width := output.Dims[1]; len(s.dense) > 0 && width > 0 && int(width) != s.width(0) {
			return nil, fmt.Errorf("%s: its output %s has %d numbers, and %s gives %d: the graph leaves out layers of "+
				"modules.json; export it with last_hidden_state", g.file, output.Name, width, s.dense[len(s.dense)-1].file, s.width(0))
		}
		s.pooling, s.from[settingPooling], s.dense = poolGraph, g.file+", its output "+output.Name, nil
	case s.pooling == "":
		return nil, s.noPooling()
	}
	n.pooling, n.keep, n.twice, n.elements = s.pooling, s.keep, s.loggedTwice, output.Elements
	if err := n.size(g, s, output); err != nil {
		return nil, err
	}
	// The file was in memory for verification; the library reads it again.
	debug.FreeOSMemory()
	open := func(threads int) (*ort.DynamicAdvancedSession, error) {
		return n.open(f.Inside(g.file), inputs, output.Name, threads, o)
	}
	if n.wide, err = open(threads(o)); err != nil {
		more := ""
		if len(g.External) > 0 {
			more = ", weights in " + strings.Join(g.External, ", ")
		}
		return nil, fmt.Errorf("load %s%s: %s", g.file, more, withoutSource(err))
	}
	// The output of a sparse model is too large for one run per thread.
	if threads(o) > 1 && n.provider == providerCPU && g.bytes <= maxTwice && s.maxTokens <= maxNarrow &&
		n.pooling != poolSplade {
		if n.narrow, err = open(1); err != nil {
			return nil, errors.Join(fmt.Errorf("load %s: %s", g.file, withoutSource(err)), n.close())
		}
	}
	if err := f.Unchanged(append([]string{g.file}, g.External...)...); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", g.file, err), n.close())
	}
	return n, nil
}

// size determines the dims of the vectors, and checks that the following layers accept them.
func (n *network) size(g *graph, s *settings, output onnxfile.Port) error {
	n.dims = int(output.Dims[len(output.Dims)-1])
	if n.pooling == poolRerank {
		n.dims = 1
	}
	widest := 16_000
	if n.pooling == poolSplade {
		widest = embed.MaxSparseDims
	}
	switch {
	case n.dims > 0:
	case n.pooling == poolSplade:
		n.dims = s.vocab
	default:
		n.dims = s.hidden
	}
	if n.dims < 1 || n.dims > widest {
		return fmt.Errorf("%s: vectors of %d dims are not supported", g.file, n.dims)
	}
	if len(s.dense) > 0 && s.dense[0].in != n.dims {
		return fmt.Errorf("%s takes %d numbers, and %s gives %d", s.dense[0].file, s.dense[0].in, g.file, n.dims)
	}
	if width := s.width(n.dims); s.wantsNorm && s.layerNorm == nil && s.keep > 0 && s.keep < width {
		return fmt.Errorf("%d of %d dims: the card of nomic-embed-text-v1.5 makes a layer norm before it keeps some, "+
			"and that of other models of this kind does not: set layer_norm to true or false", s.keep, width)
	}
	if s.keep > s.width(n.dims) {
		return fmt.Errorf("%d dims are to be kept, but the model's vectors have %d", s.keep, s.width(n.dims))
	}
	return nil
}

// source matches the source location that ONNX Runtime puts before its messages.
var source = regexp.MustCompile(`Load model from .* failed: ?|/onnxruntime_src/\S+:\d+ [^()]*\([^()]*\) `)

// withoutSource removes it, because the host keeps only the beginning of a message.
func withoutSource(err error) string { return source.ReplaceAllString(err.Error(), "") }

// open makes a session with a number of threads, and records the provider.
func (n *network) open(path string, inputs []string, output string, threads int,
	o Options,
) (*ort.DynamicAdvancedSession, error) {
	options, err := sessionOptions(threads)
	if err != nil {
		return nil, err
	}
	defer func() { _ = options.Destroy() }()
	if n.provider, err = useProvider(options, o.Library, o.Provider); err != nil {
		return nil, err
	}
	return ort.NewDynamicAdvancedSession(path, inputs, []string{output}, options)
}

// shared returns the session for concurrent runs.
func (n *network) shared() *ort.DynamicAdvancedSession { return cmp.Or(n.narrow, n.wide) }

// close frees the memory of the sessions.
func (n *network) close() error {
	err := n.wide.Destroy()
	if n.narrow != nil {
		err = errors.Join(err, n.narrow.Destroy())
	}
	return err
}

// outputNames are the names of outputs with vectors of whole texts and of tokens, the usual ones first.
var outputNames = []string{"sentence_embedding", "text_embeds", "last_hidden_state", "token_embeddings"}

// pooledOutput is derived from the first token for the encoder's pre-training task. It is not an embedding, and used
// only if the graph has no other output.
const pooledOutput = "pooler_output"

// numbers reports whether an output has a supported number type.
func numbers(out onnxfile.Port) bool {
	return out.Elements == onnxfile.Float32 || out.Elements == onnxfile.Float16
}

// chooseOutput returns the output with vectors of tokens if the pooling is known, or else that of whole texts,
// depending on what the graph has.
func chooseOutput(g *graph, s *settings) (onnxfile.Port, error) {
	if out := scores(g, s); out != nil {
		return *out, nil
	}
	shapes, names := []int{2, 3}, outputNames
	switch {
	case s.pooling == poolSplade:
		shapes, names = []int{3}, []string{"logits", "token_embeddings"}
	case s.poolingSet:
		shapes = []int{3, 2}
	}
	for _, dims := range shapes {
		for _, name := range names {
			for _, out := range g.Outputs {
				if out.Name == name && len(out.Dims) == dims && numbers(out) {
					return out, nil
				}
			}
		}
	}
	if len(g.Outputs) == 1 && numbers(g.Outputs[0]) {
		out := g.Outputs[0]
		ofWords := len(out.Dims) == 3 && out.Dims[2] == int64(s.vocab)
		ofTexts := len(out.Dims) == 2 && out.Name == pooledOutput
		if s.pooling == poolSplade && ofWords || !s.poolingSet && ofTexts {
			return out, nil
		}
	}
	if s.pooling == poolSplade {
		return onnxfile.Port{}, fmt.Errorf("%s: no output named logits with numbers for each token, only %s: sparse vectors "+
			"are made by a model with a head for masked words", g.file, onnxfile.List(g.Outputs))
	}
	more := ""
	for _, out := range g.Outputs {
		switch {
		case out.Name == "logits" && len(out.Dims) == 3:
			more = "; logits for each token are what a sparse model gives: pooling splade"
		case out.Name == "logits":
			more = "; logits for each text are what a classifier gives, which makes no vectors; a reranker's are one number"
		}
	}
	return onnxfile.Port{}, fmt.Errorf("%s: no output named %s with numbers of 32 or 16 bits, only %s%s", g.file,
		strings.Join(outputNames, ", "), onnxfile.List(g.Outputs), more)
}

// CPUs without VNNI multiply signed by unsigned 8-bit numbers in 16 bits, which overflow. With an option ONNX Runtime
// uses unsigned weights there. This version and later ones do so for our graphs; 1.24 crashes.
const preciseMajor, preciseMinor = 1, 31

func sessionOptions(threads int) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("make session options: %w", err)
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(threads),
		options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
		// ONNX Runtime keeps a memory pattern for each shape, and here almost every run has a new shape.
		options.SetMemPattern(false),
		// Waiting threads sleep instead of spinning, because the database uses the same CPUs.
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
	)
	if atLeast(ort.GetVersion(), preciseMajor, preciseMinor) {
		err = errors.Join(err, options.AddSessionConfigEntry("session.x64quantprecision", "1"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set session options: %w", err), options.Destroy())
	}
	return options, nil
}

// scoresOutput is the output of a classification head; a reranker has one class.
const scoresOutput = "logits"

// scores returns the output with a reranker's scores; nil: the graph is not a reranker.
func scores(g *graph, s *settings) (found *onnxfile.Port) {
	for i, out := range g.Outputs {
		if slices.Contains(outputNames, out.Name) {
			return nil
		}
		if out.Name == scoresOutput && len(out.Dims) == 2 && numbers(out) &&
			(out.Dims[1] == 1 || out.Dims[1] < 1 && s.labels == 1) {
			found = &g.Outputs[i]
		}
	}
	return found
}

func reranks(g *graph, s *settings) bool { return scores(g, s) != nil }
