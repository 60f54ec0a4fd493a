// Package folder reads model folders. It verifies files by SHA256SUMS and never reads outside of the folder.
package folder

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// SumsFile lists the sha256 of every file of a model folder, as sha256sum writes it.
const SumsFile = "SHA256SUMS"

// MaxSettingsBytes is the size limit of a settings file.
const MaxSettingsBytes = 1 << 20

// A Folder is a model folder whose files are verified by its SHA256SUMS. Links and names in it cannot lead outside.
type Folder struct {
	Path string
	root *os.Root
	dir  *os.File               // the opened folder, even if path is replaced later
	Sums map[string]string      // by name with slashes, checked
	seen map[string]os.FileInfo // of files when they were opened for verification
}

// Open opens a model folder and reads its list of sums. The caller closes it.
func Open(name string) (*Folder, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("open model folder: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open model folder: %w", err)
	}
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open model folder: %w", err)
	}
	f := &Folder{Path: abs, root: root, dir: dir, seen: map[string]os.FileInfo{}}
	if err := f.readSums(); err != nil {
		f.Close()
		return nil, fmt.Errorf("open model folder %s: %w", abs, err)
	}
	return f, nil
}

// Close closes the folder.
func (f *Folder) Close() { _, _ = f.dir.Close(), f.root.Close() }

// Inside returns a file's path, for a library that opens files by path. On Linux it refers to the opened folder itself.
func (f *Folder) Inside(name string) string {
	here := fmt.Sprintf("/proc/self/fd/%d", f.dir.Fd())
	if info, err := os.Stat(here); err == nil {
		if opened, err := f.dir.Stat(); err == nil && os.SameFile(info, opened) {
			return filepath.Join(here, filepath.FromSlash(name))
		}
	}
	return filepath.Join(f.Path, filepath.FromSlash(name))
}

// Unchanged returns an error if verified files were changed or replaced since. Call it after a library has opened them
// by path.
func (f *Folder) Unchanged(names ...string) error {
	for _, name := range names {
		now, err := os.Stat(f.Inside(name))
		if err != nil {
			return err
		}
		before := f.seen[path.Clean(name)]
		same := before != nil && os.SameFile(before, now) && before.Size() == now.Size()
		if !same || !before.ModTime().Equal(now.ModTime()) || changedAt(before) != changedAt(now) {
			return fmt.Errorf("%s was changed while it was loaded", name)
		}
	}
	return nil
}

func (f *Folder) open(name string) (*os.File, error) { return OpenRegular(f.root.OpenFile, name) }

// Opener is os.OpenFile, or that of an os.Root.
type Opener func(name string, flag int, perm os.FileMode) (*os.File, error)

// OpenRegular opens a regular file for reading, and nothing else. It does not block on a pipe, even if a pipe replaces
// the file at the last moment.
func OpenRegular(open Opener, name string) (*os.File, error) {
	file, err := open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is no regular file", file.Name()))
	}
	return file, nil
}

func (f *Folder) readSums() error {
	data, err := f.readAll(SumsFile, MaxSettingsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s, so its files cannot be verified; if you trust them, make it: "+
			"cd %s && find . -type f ! -name %s | sed 's|^./||' | sort | xargs sha256sum > %s", SumsFile, f.Path, SumsFile,
			SumsFile)
	}
	if err != nil {
		return err
	}
	f.Sums, err = ParseSums(data)
	return wrap.Errorf(err, "read %s", SumsFile)
}

// ParseSums parses a SHA256SUMS file. It returns the sums, 64 hexadecimal digits, by file name with slashes.
func ParseSums(data []byte) (map[string]string, error) {
	sums := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for number := 1; lines.Scan(); number++ {
		sum, name, ok := strings.Cut(lines.Text(), " ")
		name = strings.TrimPrefix(strings.TrimLeft(name, " *"), "./")
		if !ok || !IsSum(sum) || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("line %d is not a sha256 and the name of a file", number)
		}
		sums[name] = strings.ToLower(sum)
	}
	return sums, lines.Err()
}

// IsSum reports whether a text is a SHA-256 in hexadecimal.
func IsSum(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size
}

// VerifyRest verifies every listed file except those in done, which were verified while they were read.
func (f *Folder) VerifyRest(done ...string) error {
	for name := range f.Sums {
		if slices.Contains(done, name) {
			continue
		}
		if err := f.Verify(name); err != nil {
			return err
		}
	}
	return nil
}

// Verify verifies one file without keeping it in memory.
func (f *Folder) Verify(name string) error {
	if _, listed := f.Sums[name]; !listed {
		return f.compare(name, nil)
	}
	file, err := f.open(name)
	if err != nil {
		return fmt.Errorf("open %s, which %s lists: %w", name, SumsFile, err)
	}
	defer func() { _ = file.Close() }()
	if f.seen[path.Clean(name)], err = file.Stat(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return f.compare(name, hash.Sum(nil))
}

func (f *Folder) compare(name string, sum []byte) error {
	want, listed := f.Sums[name]
	if !listed {
		return fmt.Errorf("%s is not listed in %s, so it cannot be verified", name, SumsFile)
	}
	if got := hex.EncodeToString(sum); got != want {
		return fmt.Errorf("%s has sha256 %s, but %s says %s: the file is damaged or was changed; fetch the model again",
			name, got, SumsFile, want)
	}
	return nil
}

// Read returns the verified content of a file.
func (f *Folder) Read(name string, limit int64) ([]byte, error) {
	data, err := f.readAll(name, limit)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return data, f.compare(name, sum[:])
}

// Stream passes the content of a file to read, which may stop early. Discard what read has made if Stream returns an
// error: the file is verified only at its end.
func (f *Folder) Stream(name string, read func(in io.Reader, size int64) error) error {
	file, err := f.open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	hash := sha256.New()
	wrong := read(io.TeeReader(file, hash), info.Size())
	if _, err := io.Copy(hash, file); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := f.compare(name, hash.Sum(nil)); err != nil {
		return err
	}
	if wrong != nil {
		return fmt.Errorf("%s: %w", name, wrong)
	}
	return nil
}

func (f *Folder) readAll(name string, limit int64) ([]byte, error) {
	file, err := f.open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f.seen[path.Clean(name)] = info
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("read %s: it is not a file of at most %d bytes", name, limit)
	}
	data := make([]byte, info.Size()) // of exact size: the weights are large
	_, err = io.ReadFull(file, data)
	return data, wrap.Errorf(err, "read %s", name)
}

// ReadJSON reads a settings file into v; found is false when there is no such file.
func (f *Folder) ReadJSON(name string, v any) (found bool, err error) {
	data, err := f.Read(name, MaxSettingsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if _, listed := f.Sums[name]; !listed {
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("parse %s: %w", name, err)
	}
	return true, nil
}

// promptNames are the names of prompts for documents and queries, the usual ones first.
var promptNames = map[embed.Kind][]string{
	embed.Document: {"document", "passage", "corpus", "search_document", "retrieval.passage"},
	embed.Query:    {"query", "search_query", "web_search_query", "retrieval.query", "s2p_query"},
}

// Prompts returns the prefixes of documents and queries, and the file that each comes from. A prefix that no file
// states is missing. If the folder has only prompts of other names, their names are returned as unused.
func (f *Folder) Prompts() (prefixes, from map[embed.Kind]string, unused []string, err error) {
	const name = "config_sentence_transformers.json"
	var config struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	if _, err := f.ReadJSON(name, &config); err != nil {
		return nil, nil, nil, err
	}
	prefixes, from = map[embed.Kind]string{}, map[embed.Kind]string{}
	for kind, names := range promptNames {
		if config.Default != nil {
			names = append(slices.Clip(names), *config.Default)
			if _, ok := config.Prompts[*config.Default]; !ok {
				prefixes[kind], from[kind] = "", name+", "+*config.Default
			}
		}
		for _, prompt := range names {
			if prefix, ok := config.Prompts[prompt]; ok {
				prefixes[kind], from[kind] = prefix, name+", "+prompt
				break
			}
		}
	}
	if len(from) == 0 && len(config.Prompts) > 0 {
		unused = slices.Sorted(maps.Keys(config.Prompts))
	}
	return prefixes, from, unused, nil
}
