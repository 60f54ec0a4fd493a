package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/owned"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Finder finds plugins, models and libraries of plugins by name. All fields may be empty.
type Finder struct {
	// Executable is the path of the running program without symbolic links: folders next to it are searched first.
	Executable string
	// Cache is the user's download folder, ${XDG_CACHE_HOME:-~/.cache}/embedsidecar.
	Cache string
}

// pluginPrefix begins the file names of plugins.
const pluginPrefix = "embedsidecar-"

// systemDir is the folder where packages and images install plugins and models.
const systemDir = "/usr/lib/embedsidecar"

// NewFinder returns a Finder for a program and its environment, in the form of os.Environ.
func NewFinder(executable string, environ []string) Finder {
	if resolved, err := filepath.EvalSymlinks(executable); err == nil {
		executable = resolved
	}
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	cache := env["XDG_CACHE_HOME"]
	if !filepath.IsAbs(cache) && env["HOME"] != "" { // XDG: ignore a relative path
		cache = filepath.Join(env["HOME"], ".cache")
	}
	if !filepath.IsAbs(cache) {
		return Finder{Executable: executable}
	}
	return Finder{Executable: executable, Cache: filepath.Join(cache, "embedsidecar")}
}

// NewModels returns the folder for new models: that of --model-dir, else one in the user's cache.
func (f Finder) NewModels(c *Config) (string, error) {
	if c.ModelDir != "" {
		return filepath.Abs(c.ModelDir)
	}
	if f.Cache == "" {
		return "", mistake("there is no folder for models: neither --model-dir nor HOME nor XDG_CACHE_HOME is set")
	}
	return filepath.Join(f.Cache, "models"), nil
}

// NotFoundError means that a plugin, a model or a library was not found.
type NotFoundError struct {
	Kind     string   // "plugin", "model", or the kind of library
	Name     string   // as the user wrote it
	Searched []string // paths in search order
	Setting  string   // the flag that names it directly, or the key of a setting
	Near     string   // a similar name; "": none
	More     string   // how a configuration file can name it; "": unknown
}

// Error lists the searched paths.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s %q not found, looked at:\n  %s", e.Kind, e.Name, strings.Join(e.Searched, "\n  "))
}

// Hints returns what to do.
func (e *NotFoundError) Hints() []string {
	flag := e.Setting
	if s := settingAt(flag); s != nil && s.Flag == "" {
		flag = "set " + flag + "=FILE"
	}
	hint := fmt.Sprintf("name it with --%s or %s, or put it into one of these places", flag, EnvName(e.Setting))
	hints := []string{hint}
	if e.Near != "" {
		hints = []string{spelling.Question(e.Near), hint}
	}
	if e.Kind == "model" {
		hints = append(hints, "a model is "+manifest.OfFolders().Model.Is)
	}
	if e.More != "" {
		hints = append(hints, e.More)
	}
	return hints
}

// places returns the paths to search for a file: the path in its name, or in the folders.
func (e *NotFoundError) places(file string, dirs []string) []string {
	if isPath(e.Name) {
		e.Setting = e.Kind
		return []string{e.Name}
	}
	return lists.Map(dirs, func(d string) string { return filepath.Join(d, file) })
}

// dirs returns the folders to search: dir if it is set, else those of names next to the program, the system's, and the
// one in the user's cache.
func (f Finder) dirs(dir, cached string, names ...string) (dirs []string) {
	if dir != "" {
		return []string{dir}
	}
	if f.Executable != "" {
		dirs = lists.Map(names, func(name string) string { return filepath.Join(filepath.Dir(f.Executable), name) })
	}
	dirs = append(dirs, filepath.Join(systemDir, names[0]))
	if f.Cache != "" && cached != "" {
		dirs = append(dirs, filepath.Join(f.Cache, cached))
	}
	return dirs
}

func (f Finder) pluginDirs(dir string) []string { return f.dirs(dir, "", "plugins") }

// Models returns the folders in which Model searches for a name.
func (f Finder) Models(dir string) []string { return f.dirs(dir, "models", "models", "../models") }

// Plugin returns the program of a plugin. "toy" is the file embedsidecar-toy in dir or, if dir is empty, in the default
// folders; a name with a slash is a path. It returns a *NotFoundError, or why the file cannot be run.
func (f Finder) Plugin(name, dir string) (string, error) {
	missing := &NotFoundError{Kind: "plugin", Name: name, Setting: "plugin-dir"}
	for _, path := range missing.places(pluginPrefix+name, f.pluginDirs(dir)) {
		missing.Searched = append(missing.Searched, path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			continue
		case !info.Mode().IsRegular():
			return "", mistake(fmt.Sprintf("plugin %q: %s is not a file", name, path))
		case info.Mode().Perm()&0o111 == 0:
			return "", mistake(fmt.Sprintf("plugin %q: %s is not executable: run chmod +x on it", name, path))
		}
		if err := owned.Check(path); err != nil {
			return "", mistake(fmt.Sprintf("plugin %q: other users control what runs here: %s", name, err))
		}
		return filepath.Abs(path)
	}
	missing.Near = spelling.One(name, f.Plugins(dir))
	return "", missing
}

// Plugins returns the names of the plugins in a folder or, if dir is empty, in the default ones.
func (f Finder) Plugins(dir string) []string {
	var names []string
	for _, d := range f.pluginDirs(dir) {
		found, err := fs.Glob(os.DirFS(d), pluginPrefix+"*")
		if err != nil {
			continue
		}
		for _, file := range found {
			info, err := os.Stat(filepath.Join(d, file))
			if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
				names = append(names, strings.TrimPrefix(file, pluginPrefix))
			}
		}
	}
	return names
}

// Model returns the folder of a model. A name is searched for in dir or, if dir is empty, in the default folders; a
// name with a slash is a path. It returns a *NotFoundError with a similar name: another folder there, or one of others.
func (f Finder) Model(name, dir string, others ...string) (string, error) {
	missing := &NotFoundError{Kind: "model", Name: name, Setting: "model-dir"}
	for _, path := range missing.places(name, f.Models(dir)) {
		missing.Searched = append(missing.Searched, path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return filepath.Abs(path)
		}
	}
	names := slices.Clone(others)
	for _, d := range f.Models(dir) {
		entries, err := os.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	missing.Near = spelling.One(name, names)
	return "", missing
}

// Library returns the library of a plugin: path if it is set, else the newest version in the default folders. It
// returns a *NotFoundError.
func (f Finder) Library(library *manifest.Library, path string) (string, error) {
	missing := &NotFoundError{Kind: library.Is, Name: library.Name, Setting: library.Setting}
	if path != "" {
		missing.Name, missing.Searched = path, []string{path}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return "", missing
		}
		return ownLibrary(path)
	}
	pattern := library.Name + ".so*"
	if runtime.GOOS == "darwin" {
		pattern = library.Name + "*.dylib"
	}
	for _, dir := range f.dirs("", library.Cache, "lib", "../lib") {
		missing.Searched = append(missing.Searched, filepath.Join(dir, pattern))
		found, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil || len(found) == 0 {
			continue
		}
		slices.SortFunc(found, compareVersions)
		return ownLibrary(filepath.Join(dir, found[len(found)-1]))
	}
	return "", missing
}

// ownLibrary returns the absolute path of a library, if no other user can change it: its code runs in the plugin.
func ownLibrary(path string) (string, error) {
	if err := owned.Check(path); err != nil {
		return "", mistake(fmt.Sprintf("other users control what is loaded here: %s", err))
	}
	return filepath.Abs(path)
}

// compareVersions orders names so that lib.so.1.9.0 comes before lib.so.1.23.0.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		if len(as[i]) != len(bs[i]) && isNumber(as[i]) && isNumber(bs[i]) {
			return len(as[i]) - len(bs[i])
		}
		if c := strings.Compare(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isPath(name string) bool {
	return strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".."
}
