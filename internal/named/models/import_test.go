package models_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// script replaces make_onnx.py: it writes its arguments.
const script = `
import sys
folder, out = sys.argv[1:3]
if open(folder + "/model.safetensors").read() == "bad":
    sys.exit("make_onnx.py: error: the weights are bad")
open(out, "w").write(" ".join(sys.argv[3:]))
`

func published() map[string]string {
	return map[string]string{
		"config.json": `{"model_type": "bert", "hidden_size": 8}`, "tokenizer.json": `{"model": {"type": "WordPiece"}}`,
		"modules.json": `[{"path": ""}, {"path": "1_Pooling"}]`, "1_Pooling/config.json": `{}`, weights: "weights",
		"training.log": "x",
	}
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "published")
	onnxtest.WriteFiles(t, folder, files)
	return folder
}

func importing(t *testing.T, files map[string]string) models.ImportOptions {
	t.Helper()
	return models.ImportOptions{
		From: write(t, files), Name: "new", Into: filepath.Join(t.TempDir(), "models"),
		Script: []byte(script),
	}
}

// importFails imports, and checks the error.
func importFails(t *testing.T, o models.ImportOptions, want string) {
	t.Helper()
	if _, err := models.Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("import %s: got %v, want %q", o.File, err, want)
	}
}

// wantNothing checks that a folder of models holds only those named, and nothing half made.
func wantNothing(t *testing.T, into string, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(into)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if err != nil || !slices.Equal(names, but) {
		t.Errorf("%s holds %v, want %v (%v)", into, names, but, err)
	}
}

func TestImport(t *testing.T) {
	o := importing(t, published())
	o.Int8 = true
	tried := ""
	o.Try = func(ctx context.Context, folder string) error {
		problems, err := models.Verify(ctx, folder)
		tried = filepath.Base(folder)
		return errors.Join(err, errors.New(strings.Join(problems, "")))
	}
	if _, err := models.Import(t.Context(), o); err == nil || tried != "new" {
		t.Fatalf("a model that does not work was imported (%v, tried %q)", err, tried)
	}
	wantNothing(t, o.Into)

	o.Try = nil
	done, err := models.Import(t.Context(), o)
	if err != nil || done.Already || !done.Int8 || done.Type != "bert" || done.Dims != 8 ||
		done.Tokenizer != "WordPiece" || done.Problem != "" {
		t.Fatalf("got %+v, %v", done, err)
	}
	const want = "[1_Pooling/config.json config.json model.onnx model_int8.onnx modules.json tokenizer.json]"
	if fmt.Sprint(done.Files) != want {
		t.Errorf("holds %v, want %v", done.Files, want)
	}
	if made, err := os.ReadFile(filepath.Join(done.Path, "model_int8.onnx")); err != nil ||
		string(made) != "--name new --int8" {
		t.Errorf("made with %q (%v)", made, err)
	}
	if problems, err := models.Verify(t.Context(), done.Path); err != nil || len(problems) > 0 {
		t.Errorf("verified: %v, %v", problems, err)
	}
	wantNothing(t, o.Into, "new")

	// The same import again changes nothing, and a different model is refused.
	if again, err := models.Import(t.Context(), o); err != nil || !again.Already {
		t.Errorf("again: %+v, %v", again, err)
	}
	o.Int8 = false
	var exists *models.ExistsError
	if _, err := models.Import(t.Context(), o); !errors.As(err, &exists) {
		t.Errorf("another model of the name: got %v", err)
	}
	if list := models.List([]string{o.Into, t.TempDir()}); len(list) != 1 || list[0].Name != "new" {
		t.Errorf("listed as %+v", list)
	}
}

// An existing graph is copied with its external weights.
func TestImport_Graph(t *testing.T) {
	files := published()
	delete(files, weights)
	files["onnx/model.onnx"], files["onnx/model.onnx_data"] = "graph", "data"
	done, err := models.Import(t.Context(), importing(t, files))
	if err != nil || !slices.Contains(done.Files, "model.onnx") || !slices.Contains(done.Files, "model.onnx_data") {
		t.Errorf("got %+v, %v", done, err)
	}
}

// The files with a graph's weights may have any names, within its folder.
func TestImport_GraphWithWeightsOfAnyName(t *testing.T) {
	files := published()
	delete(files, weights)
	tiny := onnxtest.Letters(4, 1)
	tiny.External = "parts/first.bin"
	files["onnx/model.onnx"], files["onnx/parts/first.bin"], files["onnx/other.bin"] = string(tiny.Graph()),
		string(tiny.Weights()), "not of this graph"
	done, err := models.Import(t.Context(), importing(t, files))
	if err != nil || !slices.Contains(done.Files, "parts/first.bin") || slices.Contains(done.Files, "other.bin") {
		t.Errorf("got %+v, %v", done, err)
	}
	// A file outside is not copied: opening the model fails.
	tiny.External = "../config.json"
	files["onnx/model.onnx"] = string(tiny.Graph())
	if done, err = models.Import(t.Context(), importing(t, files)); err != nil || len(done.Files) != 5 {
		t.Errorf("got %+v, %v", done, err)
	}
}

func TestImport_Refuses(t *testing.T) {
	for _, test := range []struct {
		name    string
		changes map[string]string // "" removes
		options func(*models.ImportOptions)
		want    string
	}{
		{"no tokenizer", map[string]string{"tokenizer.json": ""}, nil, "tokenizer.json: no such file"},
		{"no configuration", map[string]string{"config.json": ""}, nil, "config.json: no such file"},
		{
			"no weights",
			map[string]string{weights: ""},
			nil,
			"there is neither model.onnx nor onnx/model.onnx nor model.safetensors",
		},
		{
			"bad weights",
			map[string]string{weights: "bad"},
			nil,
			"make ONNX of model.safetensors: exit status 1: make_onnx.py: error: the weights are bad",
		},
		{
			"no weights for int8",
			map[string]string{weights: "", "model.onnx": "graph"},
			func(o *models.ImportOptions) { o.Int8 = true }, "are made of model.safetensors, which is not there",
		},
		{
			"weights that were left on the server",
			map[string]string{weights: "version https://git-lfs.example/spec/v1\noid sha256:00\n"},
			nil, "git lfs pull",
		},
		{
			"a tokenizer that was left there",
			map[string]string{"tokenizer.json": "version https://git-lfs.example/spec/v1\noid sha256:00\n"},
			nil, "tokenizer.json is a pointer",
		},
		{"bad modules", map[string]string{"modules.json": "{"}, nil, "modules.json"},
		{"no Python", nil, func(o *models.ImportOptions) { o.Python = "/nonexistent/python" }, "needs Python 3.8 or newer"},
		{"bad name", nil, func(o *models.ImportOptions) { o.Name = "../new" }, "is not the name of a model"},
		{"no folder", nil, func(o *models.ImportOptions) { o.From = "/nonexistent" }, "no such file"},
	} {
		files := published()
		maps.Copy(files, test.changes)
		maps.DeleteFunc(files, func(_, content string) bool { return content == "" })
		o := importing(t, files)
		if test.options != nil {
			test.options(&o)
		}
		if _, err := models.Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		if _, err := os.Stat(o.Into); err == nil {
			wantNothing(t, o.Into)
		}
	}
}

// A module with settings outside of the folder is ignored; the plugin would refuse it.
func TestImport_StaysInTheFolder(t *testing.T) {
	files := published()
	files["modules.json"] = `[{"path": ""}, {"path": "../secret"}]`
	o := importing(t, files)
	if err := errors.Join(os.MkdirAll(filepath.Join(o.From, "../secret"), 0o755),
		os.WriteFile(filepath.Join(o.From, "../secret/config.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	done, err := models.Import(t.Context(), o)
	if err != nil || slices.ContainsFunc(done.Files, func(name string) bool { return strings.Contains(name, "secret") }) {
		t.Errorf("got %+v, %v", done, err)
	}
}

func TestVerify(t *testing.T) {
	done, err := models.Import(t.Context(), importing(t, published()))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"config.json": "{}", "extra.bin": "x"} {
		if err := os.WriteFile(filepath.Join(done.Path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(done.Path, "modules.json")); err != nil {
		t.Fatal(err)
	}
	problems, err := models.Verify(t.Context(), done.Path)
	if err != nil || len(problems) != 3 || !strings.HasPrefix(problems[0], "config.json has sha256") ||
		problems[1] != "modules.json is missing" || problems[2] != "extra.bin is not listed in SHA256SUMS" {
		t.Errorf("got %q, %v", problems, err)
	}
	if _, err := models.Verify(t.Context(), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without sums: got %v", err)
	}
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte(strings.Repeat("0", 64) + "  a/b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := models.ParseSums(data)
		if err != nil {
			return
		}
		again, err := models.ParseSums([]byte(sums.String()))
		if err != nil || !maps.Equal(sums, again) {
			t.Fatalf("%q was read as %v, and that as %v, %v", data, sums, again, err)
		}
	})
}

func TestSamples(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range models.Samples(512) {
		seen[text] = true
	}
	if len(seen) < 500 {
		t.Errorf("only %d of 512 samples are different", len(seen))
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		about embed.Description
		a, b  [][]float32
		want  string
	}{
		{
			embed.Description{Dims: 2},
			[][]float32{{1, 0}, {1, 1}, nil},
			[][]float32{{2, 0}, {1, 0}, {1, 0}},
			"cosine 0.8536 on average, 0.7071 at least, of 2 texts",
		},
		{
			// pairs of index and number
			embed.Description{Dims: 9, Sparse: true},
			[][]float32{{3, 2}, {3, 1, 4, 1}},
			[][]float32{{3, 1}, {3, 1, 4, 1}},
			"inner product by the square of the longer one's length 0.7500 on average, 0.5000 at least, of 2 texts",
		},
	} {
		if got := models.Compare(c.about, c.a, c.b).String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A link out of the folder is not followed, whichever file it replaces; one into the folder or into a hub's cache is.
func TestImport_FollowsNoLinkOut(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"model_type": "bert"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(t *testing.T, target, name string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(name), os.Symlink(target, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"tokenizer.json", "config.json", "README.md", weights, "onnx/model.onnx", "1_Pooling/config.json",
	} {
		files := published()
		files["onnx/model.onnx"] = "graph"
		if name == weights {
			delete(files, "onnx/model.onnx")
		}
		o := importing(t, files)
		link(t, secret, filepath.Join(o.From, name))
		importFails(t, o, "leads out of the folder")
		wantNothing(t, o.Into)
	}
	// The folder itself is replaced by a link while its files are copied.
	files := published()
	files["model.onnx"] = "graph"
	o := importing(t, files)
	o.Say = func(string) {
		if err := os.Rename(o.From, o.From+".old"); err != nil {
			t.Error(err)
		}
		link(t, write(t, map[string]string{"model.onnx": "secret"}), o.From)
	}
	importFails(t, o, "leads out of the folder")
	wantNothing(t, o.Into)
	o = importing(t, published())
	if err := os.Rename(filepath.Join(o.From, "tokenizer.json"), filepath.Join(o.From, "own.json")); err != nil {
		t.Fatal(err)
	}
	link(t, "own.json", filepath.Join(o.From, "tokenizer.json"))
	if _, err := models.Import(t.Context(), o); err != nil {
		t.Errorf("a link within the folder: %v", err)
	}
	cache := t.TempDir()
	snapshot := filepath.Join(cache, "snapshots", "abc")
	if err := errors.Join(os.MkdirAll(filepath.Dir(snapshot), 0o755), os.CopyFS(snapshot, os.DirFS(o.From)),
		os.Mkdir(filepath.Join(cache, "blobs"), 0o755),
		os.Rename(filepath.Join(snapshot, "own.json"), filepath.Join(cache, "blobs", "123"))); err != nil {
		t.Fatal(err)
	}
	link(t, "../../blobs/123", filepath.Join(snapshot, "tokenizer.json"))
	o.From, o.Into = snapshot, t.TempDir()
	if _, err := models.Import(t.Context(), o); err != nil {
		t.Errorf("a link into a hub's cache: %v", err)
	}
	// A cache whose models share identical files.
	cache = t.TempDir()
	shared, model := filepath.Join(cache, "blobs", "ab"), filepath.Join(cache, "models--a--b")
	if err := errors.Join(os.MkdirAll(shared, 0o755), os.CopyFS(model, os.DirFS(filepath.Dir(filepath.Dir(snapshot)))),
		os.Rename(filepath.Join(model, "blobs", "123"), filepath.Join(shared, "abc"))); err != nil {
		t.Fatal(err)
	}
	link(t, "../../blobs/ab/abc", filepath.Join(model, "blobs", "123"))
	o.From, o.Into = filepath.Join(model, "snapshots", "abc"), t.TempDir()
	if _, err := models.Import(t.Context(), o); err == nil {
		t.Error("a link into a folder that is called blobs and is nobody's cache")
	}
	if err := os.WriteFile(filepath.Join(cache, "blobs", ".huggingface-shared-blobs"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := models.Import(t.Context(), o); err != nil {
		t.Errorf("a link into what models share: %v", err)
	}
}

// TestTrust_ALinkPutThereMidwayLeadsToNoOtherFile: the owner of the folder may change it while the script runs, and
// must not choose which file of the importing user ONNX is made from.
func TestTrust_ALinkPutThereMidwayLeadsToNoOtherFile(t *testing.T) {
	t.Parallel()
	o := importing(t, published())
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("not for others"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Script = []byte(`
import os, sys
folder, out = sys.argv[1:3]
for name in ("model.safetensors", "config.json"):
    os.remove("` + o.From + `/" + name)
    os.symlink("` + secret + `", "` + o.From + `/" + name)
open(out, "w").write(open(folder + "/model.safetensors").read() + open(folder + "/config.json").read())
`)
	done, err := models.Import(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(done.Path, "model.onnx"))
	if want := published()[weights] + published()["config.json"]; err != nil || string(made) != want {
		t.Errorf("ONNX was made of %q, want %q (%v)", made, want, err)
	}
	wantNothing(t, o.Into, "new")
}

// If only the owner may read the original, the same holds for the copy and for what is made from it.
func TestImport_KeepsWhoMayRead(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o640, 0o644} {
		o := importing(t, published())
		for _, name := range []string{"tokenizer.json", weights} {
			if err := os.Chmod(filepath.Join(o.From, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		done, err := models.Import(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tokenizer.json", "model.onnx"} {
			if info, err := os.Stat(filepath.Join(done.Path, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s of mode %o: got %v (%v)", name, mode, info.Mode(), err)
			}
		}
	}
}

// TestImport_TakesWhatWasChecked: files that were downloaded and checked must be the same when they are copied.
func TestImport_TakesWhatWasChecked(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "1_Pooling/config.json", weights} {
		files := published()
		o := importing(t, files)
		o.Sums = models.Sums{}
		for name, content := range files {
			o.Sums[name] = sumOf(content)
		}
		if err := os.WriteFile(filepath.Join(o.From, filepath.FromSlash(name)), []byte(files[name]+" "), 0o600); err != nil {
			t.Fatal(err)
		}
		importFails(t, o, name+" has sha256")
		wantNothing(t, o.Into)
	}
}
