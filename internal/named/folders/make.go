package folders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/tools"
)

// folderHint says what can be imported.
const folderHint = "a folder to import holds config.json, tokenizer.json, and the weights: model.onnx, onnx/model.onnx or model.safetensors"

// New has the options of a new model; Folders fills in the rest.
type New struct {
	models.ImportOptions

	Untried bool // do not test it with the plugin
}

// Imported is an imported model.
type Imported struct {
	models.Imported
	Int8Likeness *models.Likeness `json:"int8_likeness,omitempty"` // nil: not measured
	Settings     []embed.Setting  `json:"settings"`                // the model's settings; null: it was not tested
}

// Import makes a model folder from published files, and tests the model before it installs it.
func (f Folders) Import(ctx context.Context, from string, n New) (Imported, error) {
	n.From = from
	return f.make(ctx, n)
}

func (f Folders) make(ctx context.Context, n New) (done Imported, err error) {
	if info, err := os.Stat(n.From); err != nil || !info.IsDir() {
		return done, problem.New(problem.Usage, fmt.Errorf("import model: there is no folder %s", n.From), folderHint,
			"embedsidecar models pull fetches one from a hub")
	}
	if n.Into, err = f.home(); err != nil {
		return done, err
	}
	n.Script = tools.MakeONNX
	if !n.Untried {
		n.Try = func(ctx context.Context, folder string) error {
			about, _, err := f.vectors(ctx, folder, "", triedTexts)
			if err != nil {
				return err
			}
			done.Settings = about.Settings
			if n.Int8 {
				found, err := f.compareInt8(ctx, folder)
				done.Int8Likeness = &found
				return err
			}
			return nil
		}
	}
	if done.Imported, err = models.Import(ctx, n.ImportOptions); err != nil {
		return Imported{}, importFailure(err)
	}
	return done, nil
}

// importFailure classifies the error of an import.
func importFailure(err error) error {
	if exists, ok := errors.AsType[*models.ExistsError](err); ok {
		return problem.New(problem.Conflict, err, exists.Hints()...)
	}
	_, classified := errors.AsType[*problem.Error](err)
	if classified || problem.Of(err) == problem.Usage { // a missing plugin or library, with its hints
		return err
	}
	if class, _ := embed.Classify(err); class == embed.Configuration {
		return problem.New(problem.Usage, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return problem.New(problem.Failed, err, folderHint)
	}
	return problem.New(problem.Failed, err)
}

// Source says what to download from a hub, and what the files must be.
type Source struct {
	models.PullOptions // without a Revision: the known one of a known model, else main

	Sums     string // SHA256SUMS file that lists the files to download; "": none
	SHA256   string // of the weights; "": not given
	Unpinned bool   // the first download may be anything
}

// Download is a model to download and then import.
type Download struct {
	models.PullOptions // Progress may be set

	folders Folders
	home    string
	record  string // file of an earlier pull whose sums are required
	fetched models.Sums
}

// Download decides what to download, and what the files must be.
func (f Folders) Download(s Source) (*Download, error) {
	home, err := f.home()
	if err != nil {
		return nil, err
	}
	d := &Download{PullOptions: s.PullOptions, folders: f, home: home}
	if err := d.pin(s); err != nil {
		return nil, err
	}
	if err := models.CheckSource(d.PullOptions); err != nil {
		return nil, problem.New(problem.Usage, err)
	}
	// Files of different revisions must not be mixed.
	d.Into = filepath.Join(home, ".pull-"+strings.NewReplacer("/", "--").Replace(d.Name+"@"+d.Revision),
		filepath.Base(d.Name))
	return d, nil
}

// Fetch downloads the files and returns their sums.
func (d *Download) Fetch(ctx context.Context) (models.Sums, error) {
	sums, err := models.Pull(ctx, d.PullOptions)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		var hints []string
		if _, unfit := errors.AsType[*models.UnfitError](err); !unfit {
			hints = append(hints, "run it again: existing files are not fetched twice ("+filepath.Dir(d.Into)+")")
		}
		if d.record != "" {
			hints = append(hints, "if it has changed with good reason: "+d.record+
				" has the sums of the first pull; without it they are recorded again")
		}
		return nil, problem.New(problem.Failed, err, hints...)
	}
	d.fetched = sums
	return sums, nil
}

// Import imports the downloaded files, and stores their sums for the next pull. If only that fails, it returns the
// model and an error.
func (d *Download) Import(ctx context.Context, n New) (done Imported, err error) {
	n.Name, n.From, n.Sums = cmp.Or(n.Name, filepath.Base(d.Name)), d.Into, d.fetched
	if done, err = d.folders.make(ctx, n); err != nil {
		return done, err
	}
	recorded, _, err := models.Recorded(d.home, d.Name, d.Revision)
	if err != nil {
		return done, err
	}
	sums := models.Sums{} // may include other weights files
	maps.Copy(sums, recorded)
	maps.Copy(sums, d.fetched)
	if err := models.Record(d.home, d.Name, d.Revision, sums); err != nil {
		return done, fmt.Errorf("keep the sums of what was fetched: %w", err)
	}
	err = os.RemoveAll(filepath.Dir(d.Into))
	return done, wrap.Errorf(err, "remove what was fetched")
}

// pin determines the required sums of the files.
func (d *Download) pin(s Source) error {
	wrong := func(format string, args ...any) error { return problem.New(problem.Usage, fmt.Errorf(format, args...)) }
	revision, sums := models.Known(d.Name)
	d.Revision = cmp.Or(d.Revision, revision, "main")
	if d.Revision == revision {
		d.Pins, d.Only = sums, true
	}
	if s.Sums != "" {
		if s.SHA256 != "" {
			return wrong("--sums and --sha256 exclude each other: a list has the sum of the weights, too")
		}
		data, err := os.ReadFile(s.Sums)
		if err != nil {
			return wrong("--sums: %w", err)
		}
		d.Only = true
		if d.Pins, err = models.ParseSums(data); err != nil {
			return wrong("--sums: %s: %w", s.Sums, err)
		}
		return nil
	}
	recorded, path, err := models.Recorded(d.home, d.Name, d.Revision)
	if err != nil {
		return problem.New(problem.Failed, err)
	}
	if recorded != nil && !d.Only { // the same files with the same content
		d.Pins, d.Only, d.record = recorded, true, path
	}
	// On the first request for this file, its sum is unknown.
	fresh := d.File != "" && d.Pins[d.File] == ""
	d.Only = d.Only && d.File == ""
	if s.SHA256 != "" {
		pin := strings.ToLower(s.SHA256)
		if _, err := models.ParseSums([]byte(pin + "  x\n")); err != nil {
			return wrong("--sha256: expected 64 hexadecimal digits, not %q", s.SHA256)
		}
		if d.Pins == nil {
			d.Pins = models.Sums{}
		}
		if d.File != "" {
			d.Pins[d.File] = pin
			return nil
		}
		for _, name := range models.WeightFiles {
			if _, listed := d.Pins[name]; listed || !d.Only {
				d.Pins[name] = pin
			}
		}
	}
	if (len(d.Pins) == 0 || fresh) && !s.Unpinned {
		return problem.New(problem.Usage, fmt.Errorf("the checksum of the weights of %s is unknown", d.Name),
			"--sha256 HEX pins them: the hub shows the sum of each large file",
			"--unpinned takes them as they come, and prints the sums")
	}
	return nil
}

// agreedTexts is how many sample texts are used to compare two models.
const agreedTexts = 300

// Distilled is a static model made from another one.
type Distilled struct {
	models.Info
	Teacher   string           `json:"teacher"`
	Agreement models.Agreement `json:"agreement"` // with its teacher
	Seconds   float64          `json:"seconds"`
}

// Distill makes a static model from a model, by name or path; "" is the default one. out is the new folder; "": next to
// the other models, with the model's name.
func (f Folders) Distill(ctx context.Context, name, out string, dims int, progress func(done, total int)) (d Distilled,
	err error,
) {
	began := time.Now()
	m, err := f.named(name)
	if err != nil {
		return d, err
	}
	if out == "" {
		home, err := f.home()
		if err != nil {
			return d, err
		}
		out = filepath.Join(home, m.name+"-static")
	}
	if out, err = filepath.Abs(out); err != nil {
		return d, err
	}
	h, err := f.open(m.ref, "")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	about, err := h.Describe(ctx)
	if err != nil {
		return d, err
	}
	if about.Dims < dims {
		return d, problem.New(problem.Usage, fmt.Errorf("%d dims: the vectors of %s have %d", dims, m.name, about.Dims))
	}
	d.Teacher = m.name
	options := models.DistillOptions{
		From: m.folder, Out: out, Dims: cmp.Or(dims, min(about.Dims, usualStaticDims)), Teacher: h, About: about,
		Progress: progress,
	}
	options.Try = func(ctx context.Context, folder string) error {
		teacher, err := models.Vectors(ctx, h, about, agreedTexts)
		if err != nil {
			return err
		}
		_, made, err := f.vectors(ctx, folder, "", agreedTexts)
		if err != nil {
			return err
		}
		d.Agreement = models.Agree(teacher, made)
		return nil
	}
	if d.Info, err = models.Distill(ctx, options); err != nil {
		return Distilled{}, importFailure(err)
	}
	d.Seconds = time.Since(began).Seconds()
	return d, nil
}

// usualStaticDims keeps most of a static model's quality in a table of some ten megabytes.
const usualStaticDims = 256

// triedTexts is how many texts a model is tested with.
const triedTexts = 64

// Shown describes a model: what its folder and the model itself say.
type Shown struct {
	models.Info
	Fingerprint string `json:"fingerprint,omitempty"`
	VectorDims  int    `json:"vector_dims,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
	// Deterministic: a text's vector does not depend on the other texts of its batch, as measured on this machine.
	Deterministic bool             `json:"deterministic,omitempty"`
	Int8Likeness  *models.Likeness `json:"int8_likeness,omitempty"`
	// Settings are the model's settings and their origins.
	Settings []embed.Setting `json:"settings"`
}

// Show opens a model, by name or path, and describes it; "" is the default one.
func (f Folders) Show(ctx context.Context, name string) (shown Shown, err error) {
	m, err := f.named(name)
	if err != nil {
		return shown, err
	}
	shown.Info = models.Describe(m.folder)
	shown.Name = m.name
	h, err := f.open(m.ref, "")
	if err != nil {
		return shown, err
	}
	about, err := h.Describe(ctx)
	if err = errors.Join(err, h.Close()); err != nil {
		return shown, err
	}
	shown.Fingerprint, shown.VectorDims, shown.MaxTokens = about.Fingerprint, about.Dims, about.MaxTokens
	shown.Deterministic, shown.Settings = about.Deterministic, about.Settings
	if shown.Int8 {
		likeness, err := f.compareInt8(ctx, m.ref)
		if err != nil {
			return shown, err
		}
		shown.Int8Likeness = &likeness
	}
	return shown, nil
}

// compareInt8 compares the vectors of a model's int8 weights to those of its 32-bit weights.
func (f Folders) compareInt8(ctx context.Context, ref string) (models.Likeness, error) {
	about, whole, err := f.vectors(ctx, ref, "fp32", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	_, short, err := f.vectors(ctx, ref, "int8", triedTexts)
	if err != nil {
		return models.Likeness{}, err
	}
	return models.Compare(about, whole, short), nil
}

// vectors embeds sample texts with a model, named as for open.
func (f Folders) vectors(ctx context.Context, ref, precision string, count int) (about embed.Description,
	vectors [][]float32, err error,
) {
	h, err := f.open(ref, precision)
	if err != nil {
		return about, nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if about, err = h.Describe(ctx); err != nil {
		return about, nil, err
	}
	if about.Reranks {
		_, err = h.Rerank(ctx, "a query", []string{"a text"})
		return about, nil, err
	}
	vectors, err = models.Vectors(ctx, h, about, count)
	return about, vectors, err
}
