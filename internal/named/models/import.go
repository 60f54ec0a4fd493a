package models

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// ImportOptions say how to make a model folder.
type ImportOptions struct {
	From   string // folder with config.json, tokenizer.json, and model.onnx, onnx/model.onnx or model.safetensors
	Name   string // of the new model; "": the folder's name
	Into   string // folder of the models
	Sums   Sums   // required sums of files in From; the others are copied unchecked
	File   string // the weights file, such as onnx/model_quantized.onnx; "": the best one
	Int8   bool   // also make model_int8.onnx, from model.safetensors
	Python string // Python 3.8 or newer, which makes ONNX from safetensors
	Script []byte // tools/make_onnx.py
	// Try opens the finished folder and embeds something, before it is installed. nil: no test.
	Try func(ctx context.Context, folder string) error
	Say func(what string) // reports the current step; nil: no reports
	Stated

	from *published // From, opened
}

// Imported is the result.
type Imported struct {
	Info
	Already bool `json:"already"` // the same model already existed: nothing was done
}

// ExistsError means that another model has the name.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s exists and holds another model", e.Path)
}

// Hints returns what to do.
func (e *ExistsError) Hints() []string {
	return []string{"--name gives the new model another name", "or remove the folder first, when no pipeline uses it"}
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckName refuses invalid names for a folder.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a model: want letters, digits, dots, dashes and underscores, at most 128", name)
	}
	return nil
}

// Import makes a model folder, verifies and tests it, and installs it atomically. It leaves nothing behind when it
// fails.
func Import(ctx context.Context, o ImportOptions) (done Imported, err error) {
	if o.Name == "" {
		from, err := filepath.Abs(o.From)
		if err != nil {
			return Imported{}, fmt.Errorf("import model: %w", err)
		}
		o.Name = filepath.Base(from)
	}
	if err := CheckName(o.Name); err != nil {
		return Imported{}, err
	}
	if err := checkFile(o.File); err != nil {
		return Imported{}, err
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.from, err = openFolder(o.From); err != nil {
		return Imported{}, fmt.Errorf("import model %s: %w", o.From, err)
	}
	defer o.from.close()
	if err := makeFolder(o.Into); err != nil {
		return Imported{}, fmt.Errorf("import model: %w", err)
	}
	staged, err := os.MkdirTemp(o.Into, ".import-")
	if err != nil {
		return Imported{}, fmt.Errorf("import model: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	made := filepath.Join(staged, o.Name) // the plugin uses the folder's name as the model's
	if err := fill(ctx, o, made); err != nil {
		return Imported{}, fmt.Errorf("import model %s: %w", o.From, err)
	}
	final := filepath.Join(o.Into, o.Name)
	if already, err := same(ctx, made, final); err != nil || already {
		return Imported{Describe(final), already}, err
	}
	if o.Try != nil {
		o.Say("trying the model")
		if err := o.Try(ctx, made); err != nil {
			return Imported{}, fmt.Errorf("import model %s: it does not work: %w", o.From, err)
		}
	}
	if err := install(made, final); err != nil {
		return Imported{}, err
	}
	return Imported{Info: Describe(final)}, nil
}

// fill writes the files of the folder: copies, the graph, the sums.
func fill(ctx context.Context, o ImportOptions, made string) error {
	if _, err := os.Stat(filepath.Join(o.From, weightsFile)); o.Int8 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weights in 8 bits are made of %s, which is not there", weightsFile)
	}
	if err := makeFolder(made); err != nil {
		return err
	}
	must, static := filesOf(o.From), isStatic(o.From)
	if static && (o.Int8 || o.Pooling != "" || o.File != "") {
		return errors.New("it is a static model: it has neither a pooling nor a file to choose, nor weights in 8 bits to make")
	}
	names := slices.Concat(must, optional)
	if static {
		names = append(names, configFile)
	}
	modules, err := readModules(o.From)
	if err == nil && !static {
		err = atTheTop(modules)
	}
	if err != nil {
		return err
	}
	for _, module := range modules {
		names = lists.Add(names, module.files()...)
	}
	for i, name := range names {
		err := copyFile(o, name, filepath.Join(made, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) && i >= len(must) {
			continue
		}
		if err != nil {
			return err
		}
	}
	if !static {
		o.limit()
	}
	if err := o.Stated.write(made); err != nil {
		return err
	}
	if !static {
		if err := fillGraph(ctx, o, made); err != nil {
			return err
		}
	}
	if o.Int8 {
		o.Say("making " + int8File)
		if err := makeONNX(ctx, o, filepath.Join(made, int8File), "--int8"); err != nil {
			return err
		}
	}
	return sumAll(made)
}

// The files that a model must have and may have. Other files of a folder are not copied.
var (
	required = []string{configFile, tokenizerFile}
	optional = []string{
		"tokenizer_config.json", "special_tokens_map.json", modulesFile, routerFile, limitsFile,
		"sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
		"sentence_albert_config.json",
		"sentence_xlm-roberta_config.json", "sentence_xlnet_config.json", promptsFile, "vocab.txt",
		"README.md", "LICENSE", "LICENSE.txt", "NOTICE",
	}
)

// files returns the possible files of a module: its settings, the weights of a dense layer or of a query's tokens, and
// the tokenizer for these.
func (m module) files() []string {
	if m.Path == "" || m.Path == "." || !filepath.IsLocal(m.Path) {
		return nil
	}
	folder := filepath.ToSlash(m.Path) + "/"
	files := []string{folder + configFile, folder + weightsFile}
	if m.kind() == "SparseStaticEmbedding" {
		files = append(files, folder+tokenizerFile)
	}
	return files
}

// fillGraph copies model.onnx with its external weights, or makes it.
func fillGraph(ctx context.Context, o ImportOptions, made string) error {
	if o.File != "" && o.File != weightsFile {
		err := copyGraph(o, o.File, made)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no %s in the folder", o.File)
		}
		return err
	}
	for _, name := range []string{graphFile, "onnx/" + graphFile} {
		if _, err := os.Stat(filepath.Join(o.From, name)); err == nil && o.File == "" {
			return copyGraph(o, name, made)
		}
	}
	weights, err := o.from.open(weightsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range variants {
		if _, there := os.Stat(filepath.Join(o.From, name)); err != nil && there == nil && o.File == "" {
			return copyGraph(o, name, made)
		}
	}
	if err != nil {
		return fmt.Errorf("there is neither %s nor onnx/%s nor %s: %s", graphFile, graphFile, weightsFile, exportIt(""))
	}
	if err := errors.Join(checkPointer(weights, weights.Name()), weights.Close()); err != nil {
		return err
	}
	if err := notMade(o.From); err != nil {
		return err
	}
	o.Say("making " + graphFile)
	return makeONNX(ctx, o, filepath.Join(made, graphFile))
}

// copyGraph copies a graph with its external weights.
func copyGraph(o ImportOptions, name, made string) error {
	o.Say("copying " + name)
	if err := copyFile(o, name, filepath.Join(made, graphFile)); err != nil {
		return err
	}
	files, named := externalFiles(filepath.Join(made, graphFile))
	for _, data := range files {
		from := path.Join(path.Dir(filepath.ToSlash(name)), data)
		err := copyFile(o, from, filepath.Join(made, data))
		if errors.Is(err, fs.ErrNotExist) && named {
			return fmt.Errorf("%s keeps weights in %s, which is not there", name, from)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// maxGraphBytes is the limit of the format.
const maxGraphBytes = 2 << 30

// externalFiles returns the files with a graph's weights, relative to its folder: those that it names or, if it cannot
// be read, the usual names of exporters. Errors in the graph are found when the model is opened.
func externalFiles(graph string) (files []string, named bool) {
	usual := []string{graphFile + "_data", graphFile + ".data"}
	data, err := readLimited(graph, maxGraphBytes)
	if err != nil {
		return usual, false
	}
	parsed, err := onnxfile.Parse(data)
	if err != nil {
		return usual, false
	}
	names := slices.DeleteFunc(slices.Clone(parsed.External), func(name string) bool { return !filepath.IsLocal(name) })
	slices.Sort(names)
	return slices.Compact(names), true
}

// checkPointer refuses the pointer files of Git LFS.
func checkPointer(in io.ReaderAt, name string) error {
	head := make([]byte, 200) // a pointer file is hardly longer
	n, err := in.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if text := string(head[:n]); strings.HasPrefix(text, "version ") && strings.Contains(text, "\noid sha256:") {
		return fmt.Errorf("%s is a pointer of Git LFS and not the file itself: run git lfs pull in the clone", name)
	}
	return nil
}

// makeONNX runs the script, which Python reads from standard input. It opens the inputs itself, so a symbolic link that
// is put into the folder meanwhile cannot redirect the script to another file.
func makeONNX(ctx context.Context, o ImportOptions, out string, flags ...string) (err error) {
	o.Python = cmp.Or(o.Python, "python3")
	python, err := exec.LookPath(o.Python)
	if err != nil {
		return fmt.Errorf("making ONNX of %s needs Python 3.8 or newer: %w", weightsFile, err)
	}
	opened, err := os.MkdirTemp(o.Into, ".opened-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(opened)) }()
	const first = 3 // after standard input, output and error
	var files []*os.File
	for i, name := range []string{weightsFile, configFile} {
		file, err := o.from.open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		files = append(files, file)
		if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", first+i), filepath.Join(opened, name)); err != nil {
			return err
		}
	}
	mode, err := modeOf(files[0])
	if err != nil {
		return err
	}
	args := append([]string{"-I", "-", opened, out, "--name", o.Name}, flags...)
	if modules, _ := readModules(o.From); o.Pooling == splade || sparse(modules) {
		args = append(args, "--words")
	}
	command := exec.CommandContext(ctx, python, args...)
	command.Stdin, command.ExtraFiles = bytes.NewReader(o.Script), files
	var complaint bytes.Buffer
	command.Stderr = &complaint
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := strings.ReplaceAll(strings.TrimSpace(complaint.String()), opened, o.From)
		return fmt.Errorf("make ONNX of %s: %w: %s", weightsFile, err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	for i, name := range []string{weightsFile, configFile} { // they may have been modified meanwhile
		_, err := files[i].Seek(0, io.SeekStart)
		if sum, err := fileSum(files[i], err); err != nil {
			return err
		} else if err := o.mustBe(name, sum); err != nil {
			return err
		}
	}
	return os.Chmod(out, mode) // the same as that of the weights
}

// mustBe refuses a file that differs from the one that was checked.
func (o *ImportOptions) mustBe(name, sum string) error {
	if want := o.Sums[filepath.ToSlash(name)]; want != "" && want != sum {
		return fmt.Errorf("%s has sha256 %s and had %s when it was fetched: it was changed meanwhile", name, sum, want)
	}
	return nil
}

// makeFolder makes a folder that everyone may enter: the sidecar may run as another user than the import.
func makeFolder(path string) error { return os.MkdirAll(path, 0o755) } //nolint:gosec // see above

// published is the folder of a published model. It is opened once: a folder that replaces it later is not read.
type published struct {
	folder string
	homes  map[string]*os.Root // folders that may hold its files, by path
}

// openFolder opens the folder. Its links may lead only to other files of it, or to the file store of a hub's cache.
// Otherwise the owner of the folder could choose which files of the importing user are copied.
func openFolder(folder string) (*published, error) {
	home, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, err
	}
	p := &published{folder, map[string]*os.Root{home: root}}
	// MODEL/snapshots/REVISION/FILE -> MODEL/blobs/SUM
	if parent := filepath.Dir(home); filepath.Base(parent) == "snapshots" {
		p.blobs(filepath.Dir(parent), ".")
		// MODEL/blobs/SUM -> blobs/XX/SUM, where a mark says that this is the cache's own
		p.blobs(filepath.Dir(filepath.Dir(parent)), ".huggingface-shared-blobs")
	}
	return p, nil
}

// blobs opens a cache's folder of that name, if it exists and has a mark. It must not be a link out of the cache.
func (p *published) blobs(cache, mark string) {
	root, err := os.OpenRoot(cache)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	blobs, err := root.OpenRoot("blobs")
	if err != nil {
		return
	}
	if _, err := blobs.Stat(mark); err != nil {
		_ = blobs.Close()
		return
	}
	p.homes[filepath.Join(cache, "blobs")] = blobs
}

func (p *published) close() {
	for _, root := range p.homes {
		_ = root.Close()
	}
}

// open opens a file of the folder.
func (p *published) open(name string) (*os.File, error) {
	path := filepath.Join(p.folder, filepath.FromSlash(name))
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for home, root := range p.homes {
		if within, err := filepath.Rel(home, target); err == nil && filepath.IsLocal(within) {
			return folder.OpenRegular(root.OpenFile, within)
		}
	}
	return nil, fmt.Errorf("%s is a link that leads out of the folder: refused; put the file itself there, if it belongs to the model", path)
}

// modeOf returns the mode of a copy: readable for others only if the original is.
func modeOf(in *os.File) (fs.FileMode, error) {
	const own, all = 0o600, 0o644
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	return own | info.Mode().Perm()&all, nil
}

func copyFile(o ImportOptions, name, to string) (err error) {
	in, err := o.from.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	from := in.Name()
	mode, err := modeOf(in)
	if err != nil {
		return err
	}
	if err := checkPointer(in, from); err != nil {
		return err
	}
	if err := makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, hash), in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return o.mustBe(name, hex.EncodeToString(hash.Sum(nil)))
}

// same reports whether the same model is already installed.
func same(ctx context.Context, made, final string) (bool, error) {
	if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	a, err1 := ReadSums(made)
	b, err2 := ReadSums(final)
	if err := errors.Join(err1, err2); err != nil || a.String() != b.String() {
		return false, &ExistsError{final}
	}
	problems, err := Verify(ctx, final)
	if err != nil || len(problems) > 0 {
		return false, &ExistsError{final}
	}
	return true, nil
}

// install syncs the files and renames the folder to its final name.
func install(made, final string) error {
	err := filepath.WalkDir(made, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
	if err != nil {
		return fmt.Errorf("install model %s: %w", final, err)
	}
	if err := os.Rename(made, final); err != nil {
		if _, there := os.Lstat(final); there == nil {
			return &ExistsError{final} // of a concurrent import
		}
		return fmt.Errorf("install model: %w", err)
	}
	return syncPath(filepath.Dir(final))
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
