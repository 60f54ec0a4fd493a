package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
)

// PullOptions say what to fetch. Files are at HUB/NAME/resolve/REVISION/FILE.
type PullOptions struct {
	Hub      string // URL; http only of this machine or with everything pinned
	Name     string // "author/model", or "model"
	Revision string // "": main
	// Pins are the sums of the files, by their names there. With Only, exactly these are fetched; otherwise the pinned ones must be
	// what they are said to be, and the others are taken as they come.
	Pins    Sums
	Only    bool
	Into    string        // folder for what is fetched; what an earlier call left there is used
	Client  *http.Client  // nil: the default one
	Stall   time.Duration // without a byte for so long, the connection is given up; 0: 30 s
	Retries int           // that bring no byte further, in a row; 0: 5
	Pause   time.Duration // before the first of them; it doubles. 0: 1 s
	Log     *slog.Logger
	// Progress is told how much of a file is there; total is -1 when not known. Calls come one after the other.
	Progress func(file string, done, total int64)
}

const (
	defaultStall   = 30 * time.Second
	defaultRetries = 5
	defaultPause   = time.Second
	maxPause       = 30 * time.Second
	maxModelBytes  = 64 << 30
)

// knownPins are weights that were looked at when this program was written.
var knownPins = map[string]Sums{
	"sentence-transformers/all-MiniLM-L6-v2": {weightsFile: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
}

// KnownPins returns the pins of a model that this program brings along, or nil.
func KnownPins(name string) Sums { return maps.Clone(knownPins[name]) }

// CheckSource refuses names and addresses that nothing should be fetched from.
func CheckSource(o PullOptions) error {
	parts := strings.Split(o.Name, "/")
	if len(parts) > 2 {
		return fmt.Errorf("%q is no name of a model on a hub: want author/model", o.Name)
	}
	for _, part := range parts {
		if err := CheckName(part); err != nil {
			return err
		}
	}
	if o.Revision != "" && (!filepath.IsLocal(o.Revision) || strings.ContainsAny(o.Revision, "?#%\\ ")) {
		return fmt.Errorf("%q is no revision", o.Revision)
	}
	hub, err := url.Parse(o.Hub)
	if err != nil || hub.Host == "" || hub.Scheme != "https" && hub.Scheme != "http" || hub.RawQuery != "" || hub.User != nil {
		return fmt.Errorf("%q is no URL of a hub: want an address that begins with https, without a name, a password or a query", o.Hub)
	}
	local := slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, hub.Hostname())
	if hub.Scheme == "http" && !local && !o.Only {
		return fmt.Errorf("%s is not encrypted: anybody on the way could change what is fetched; use https, or pin every file with --sums", o.Hub)
	}
	return nil
}

// Pull fetches the files that Import wants. It goes on where an earlier call was cut off, and tries again what was cut off on the way;
// a file has its name only when it is whole and is what its pin says. It returns the sums of all files.
func Pull(ctx context.Context, o PullOptions) (Sums, error) {
	if err := CheckSource(o); err != nil {
		return nil, err
	}
	if o.Revision == "" {
		o.Revision = "main"
	}
	if o.Client == nil {
		o.Client = NewClient(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	o.Stall, o.Pause = orDefault(o.Stall, defaultStall), orDefault(o.Pause, defaultPause)
	o.Retries = orDefault(o.Retries, defaultRetries)
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

// NewClient returns the client that Pull uses when it is given none. nil is the usual transport.
func NewClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: stayEncrypted}
}

// stayEncrypted refuses to be led from an encrypted address to one that is not.
func stayEncrypted(request *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most {
		return errors.New("more than 10 redirects")
	}
	if via[0].URL.Scheme == "https" && request.URL.Scheme != "https" {
		return fmt.Errorf("the hub leads to %s, which is not encrypted", request.URL.Host)
	}
	return nil
}

func orDefault[T int | time.Duration](value, fallback T) T {
	if value > 0 {
		return value
	}
	return fallback
}

type puller struct {
	PullOptions

	got Sums
}

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
	for _, name := range required {
		if err := p.file(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range optional {
		if err := p.optional(ctx, name); err != nil {
			return err
		}
	}
	var modules []struct {
		Path string `json:"path"`
	}
	if err := readJSON(filepath.Join(p.Into, "modules.json"), &modules); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read modules.json: %w", err)
	}
	for _, module := range modules {
		if name := moduleConfig(module.Path); name != "" {
			if err := p.optional(ctx, name); err != nil {
				return err
			}
		}
	}
	return p.weights(ctx)
}

// MakeableTypes are the encoders that tools/make_onnx.py knows, as config.json calls them.
var MakeableTypes = []string{"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet"}

// WeightFiles are the names that weights may have on a hub.
var WeightFiles = []string{weightsFile, "onnx/" + graphFile, graphFile}

// weights fetches weights that ONNX can be made of, or else a graph that somebody has made.
func (p *puller) weights(ctx context.Context) error {
	if slices.Contains(MakeableTypes, readConfig(p.Into).Type) {
		if err := p.file(ctx, weightsFile); !errors.Is(err, errAbsent) {
			return err
		}
	}
	for _, folder := range []string{"onnx/", ""} {
		err := p.file(ctx, folder+graphFile)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		for _, data := range externalFiles(filepath.Join(p.Into, folder, graphFile)) {
			if err := p.optional(ctx, folder+data); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the hub has no %s of a kind that ONNX can be made of, and no onnx/%s", weightsFile, graphFile)
}

func (p *puller) optional(ctx context.Context, name string) error {
	if err := p.file(ctx, name); !errors.Is(err, errAbsent) {
		return err
	}
	return nil
}

// file fetches one file, unless it is there.
func (p *puller) file(ctx context.Context, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is no name of a file", name)
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

// isSum tells whether an entity tag is the sha256 of the content, as hubs give it for large files.
func isSum(tag string) bool {
	raw, err := hex.DecodeString(tag)
	return err == nil && len(raw) == sha256.Size
}
