package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/base/replace"
)

// PullOptions say what to download. Files are at HUB/NAME/resolve/REVISION/FILE.
type PullOptions struct {
	Hub      string // URL; http only to this machine or with all files pinned
	Name     string // "author/model", or "model"
	Revision string // "": main
	// Pins are the required sums of files, by their names on the hub. With Only, exactly these files are downloaded;
	// otherwise other files are accepted as they are.
	Pins    Sums
	Only    bool
	File    string        // the weights file, such as onnx/model_quantized.onnx; "": the best one
	Token   string        // for the hub, for restricted models
	Into    string        // folder for the downloads; it continues with what an earlier call left there
	Client  *http.Client  // nil: the default one
	Stall   time.Duration // a connection without data for this long is closed; 0: 30 s
	Retries int           // consecutive retries without progress; 0: 5
	Pause   time.Duration // before the first retry; it doubles. 0: 1 s
	Log     *slog.Logger
	// Progress gets the progress of a file; total is -1 if unknown. Calls are sequential.
	Progress func(file string, done, total int64)
}

const (
	defaultStall   = 30 * time.Second
	defaultRetries = 5
	defaultPause   = time.Second
	maxPause       = 30 * time.Second
	maxModelBytes  = 64 << 30
)

// known is a published model that this program has pinned: a revision, and all files to download.
type known struct {
	revision string
	sums     Sums
}

//nolint:gosec // sums of published files, one of which is called a tokenizer
var knownModels = map[string]known{
	"sentence-transformers/all-MiniLM-L6-v2": {"1110a243fdf4706b3f48f1d95db1a4f5529b4d41", Sums{
		"1_Pooling/config.json":             "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
		"config.json":                       "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
		"config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
		weightsFile:                         "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
		"modules.json":                      "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
		"sentence_bert_config.json":         "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
		"special_tokens_map.json":           "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
		tokenizerFile:                       "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
		"tokenizer_config.json":             "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
		"vocab.txt":                         "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
	}},
}

// Known returns the revision and the sums of all files of a pinned model; "" and nil for others.
func Known(name string) (revision string, sums Sums) {
	k := knownModels[name]
	return k.revision, maps.Clone(k.sums)
}

// recordOf returns the file with the sums of a downloaded revision, in a folder of models.
func recordOf(home, name, revision string) string {
	return filepath.Join(home, ".pulled", strings.NewReplacer("/", "--").Replace(name+"@"+revision))
}

// Recorded returns the sums of an earlier pull, with their file; nil: there was none.
func Recorded(home, name, revision string) (Sums, string, error) {
	path := recordOf(home, name, revision)
	data, err := readLimited(path, maxSumsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, nil
	}
	if err != nil {
		return nil, path, err
	}
	sums, err := ParseSums(data)
	if err != nil {
		return nil, path, fmt.Errorf("read %s: %w", path, err)
	}
	return sums, path, nil
}

// Record stores the sums of a pull for the next one.
func Record(home, name, revision string, sums Sums) error {
	path := recordOf(home, name, revision)
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return replace.File(path, []byte(sums.String()), 0o644)
}

// CheckSource refuses unsafe names and addresses.
func CheckSource(o PullOptions) error {
	parts := strings.Split(o.Name, "/")
	if len(parts) > 2 {
		return fmt.Errorf("%q is not the name of a model on a hub: want author/model", o.Name)
	}
	for _, part := range parts {
		if err := CheckName(part); err != nil {
			return err
		}
	}
	if o.Revision != "" && (!filepath.IsLocal(o.Revision) || strings.ContainsAny(o.Revision, "?#%\\ ")) {
		return fmt.Errorf("%q is not a revision", o.Revision)
	}
	hub, err := url.Parse(o.Hub)
	if err != nil || hub.Host == "" || hub.Scheme != "https" && hub.Scheme != "http" || hub.RawQuery != "" ||
		hub.User != nil {
		return fmt.Errorf("%q is not the URL of a hub: want an address that begins with https, without a name, a password or a query", o.Hub)
	}
	if hub.Scheme == "http" && !loopback.Host(hub.Hostname()) && o.Token != "" {
		return fmt.Errorf("%s is not encrypted: a token is not sent there", o.Hub)
	}
	if err := checkFile(o.File); err != nil {
		return err
	}
	if hub.Scheme == "http" && !loopback.Host(hub.Hostname()) && !o.Only {
		return fmt.Errorf("%s is not encrypted: the download could be changed on the way; use https, or pin every file with --sums", o.Hub)
	}
	return nil
}

// Pull downloads the files that Import needs. It continues interrupted downloads, also of earlier calls. A file gets
// its name only when it is complete and matches its pin. Pull returns the sums of all files.
func Pull(ctx context.Context, o PullOptions) (Sums, error) {
	if err := CheckSource(o); err != nil {
		return nil, err
	}
	o.Revision = cmp.Or(o.Revision, "main")
	o.Client = cmp.Or(o.Client, NewClient(nil))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	o.Stall, o.Pause = cmp.Or(o.Stall, defaultStall), cmp.Or(o.Pause, defaultPause)
	o.Retries = cmp.Or(o.Retries, defaultRetries)
	if err := makeFolder(o.Into); err != nil {
		return nil, fmt.Errorf("pull model: %w", err)
	}
	unlock, err := lock(o.Into)
	if err != nil {
		return nil, fmt.Errorf("pull model %s: %w", o.Name, err)
	}
	defer unlock()
	p := &puller{PullOptions: o, got: Sums{}}
	if err := p.all(ctx); err != nil {
		return nil, fmt.Errorf("pull model %s: %w", o.Name, err)
	}
	return p.got, nil
}

// NewClient returns the default client of Pull. A nil transport is the default one.
func NewClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: stayEncrypted}
}

// stayEncrypted refuses redirects from https to http.
func stayEncrypted(request *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most {
		return errors.New("more than 10 redirects")
	}
	if via[0].URL.Scheme == "https" && request.URL.Scheme != "https" {
		return fmt.Errorf("the hub redirects to %s, which is not encrypted", request.URL.Host)
	}
	return nil
}

type puller struct {
	PullOptions

	got Sums
}

// errTooLarge means that a weights file is too large to make ONNX from, and so was not downloaded.
var errTooLarge = errors.New("it has more than 2 GB, of which no ONNX can be made")

// errAbsent means that the hub has no such file.
var errAbsent = errors.New("the hub has no such file")

func (p *puller) all(ctx context.Context) error {
	if p.Only {
		for _, name := range slices.Sorted(maps.Keys(p.Pins)) {
			if err := p.file(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range []string{configFile, modulesFile, routerFile} { // they determine the other files
		if err := p.optional(ctx, name); err != nil {
			return err
		}
	}
	modules, err := readModules(p.Into)
	if err == nil && !isStatic(p.Into) {
		err = atTheTop(modules)
	}
	if err != nil {
		return err
	}
	for _, name := range filesOf(p.Into) {
		if err := p.file(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range optional {
		if err := p.optional(ctx, name); err != nil {
			return err
		}
	}
	for _, module := range modules {
		for _, name := range module.files() {
			if err := p.optional(ctx, name); err != nil {
				return err
			}
		}
	}
	if isStatic(p.Into) {
		return nil
	}
	return p.weights(ctx)
}

// MakeableTypes are the encoders that tools/make_onnx.py supports, as named in config.json.
var MakeableTypes = []string{"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet"}

// WeightFiles are the possible names of weights on a hub.
var WeightFiles = slices.Concat([]string{weightsFile, "0_StaticEmbedding/" + weightsFile}, graphs, variants)

// The names of graphs on a hub: the usual ones, and alternatives if those are missing, the most precise first.
var (
	graphs   = []string{"onnx/" + graphFile, graphFile}
	variants = []string{
		"onnx/model_optimized.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx", "onnx/model_q4.onnx",
	}
)

// checkFile refuses names that are not of a weights file.
func checkFile(name string) error {
	if name == "" || name == weightsFile || filepath.IsLocal(name) && path.Ext(name) == path.Ext(graphFile) {
		return nil
	}
	return fmt.Errorf("%q is not a file with weights: want a name like onnx/model_quantized.onnx, or %s", name, weightsFile)
}

// graph downloads a graph and its external files.
func (p *puller) graph(ctx context.Context, name string) error {
	if err := p.file(ctx, name); err != nil {
		return err
	}
	files, named := externalFiles(filepath.Join(p.Into, filepath.FromSlash(name)))
	for _, data := range files {
		err := p.file(ctx, path.Join(path.Dir(name), data))
		if errors.Is(err, errAbsent) && named {
			return fmt.Errorf("%s keeps weights in %s, which the hub does not have", name, data)
		}
		if err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return nil
}

// weights downloads weights from which ONNX can be made, or else an existing graph.
func (p *puller) weights(ctx context.Context) error {
	switch p.File {
	case "":
	case weightsFile:
		return p.file(ctx, weightsFile)
	default:
		return p.graph(ctx, p.File)
	}
	why := notMade(p.Into)
	if why == nil {
		if err := p.file(ctx, weightsFile); !errors.Is(err, errAbsent) && !errors.Is(err, errTooLarge) {
			return err
		}
	}
	for i, name := range slices.Concat(graphs, variants) {
		err := p.graph(ctx, name)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err == nil && i >= len(graphs) {
			p.Log.WarnContext(ctx, "the hub has no graph of the usual name: another is taken", "file", name)
		}
		return err
	}
	if why != nil {
		return fmt.Errorf("the hub has no onnx/%s, and %w", graphFile, why)
	}
	return &UnfitError{fmt.Errorf("the hub has no %s of which ONNX can be made, and no onnx/%s: %s", weightsFile, graphFile,
		exportIt(""))}
}

func (p *puller) optional(ctx context.Context, name string) error {
	if err := p.file(ctx, name); !errors.Is(err, errAbsent) {
		return err
	}
	return nil
}

// file downloads one file, unless it exists.
func (p *puller) file(ctx context.Context, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not the name of a file", name)
	}
	final := filepath.Join(p.Into, filepath.FromSlash(name))
	if err := makeFolder(filepath.Dir(final)); err != nil {
		return err
	}
	sum, err := fileSum(os.Open(final))
	if err == nil && (p.Pins[name] == "" || p.Pins[name] == sum) {
		p.got[name] = sum
		return nil
	}
	d := &download{puller: p, name: name, part: final + ".part", want: p.Pins[name]}
	d.url = strings.TrimSuffix(p.Hub, "/") + "/" + path.Join(p.Name, "resolve", p.Revision, name)
	if name == weightsFile && !p.Only && !isStatic(p.Into) {
		d.most = maxGraphBytes // ONNX cannot be larger
	}
	sum, err = d.run(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.Rename(d.part, final); err != nil {
		return err
	}
	p.got[name] = sum
	return nil
}
