package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/owned"
	"github.com/embedsidecar/embedsidecar/internal/base/replace"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// catalogueName is the file of registered plugins in a plugin folder.
const catalogueName = "catalog.yaml"

// catalogueHead is the header of the file.
const catalogueHead = "# Plugins that `embedsidecar plugins register` has pinned. An entry of the same name in the configuration file wins.\n"

// Catalogue returns the path of the file of registered plugins: plugins.catalog_file, else catalog.yaml in the plugin
// folder. The file need not exist.
func (f Finder) Catalogue(c *Config) string {
	if c.Plugins.CatalogFile != "" {
		return absolute(c.Plugins.CatalogFile)
	}
	dirs := f.pluginDirs(c.Plugins.Dir)
	for _, wanted := range []string{catalogueName, "."} { // the first that has the file, else the first that exists
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, wanted)); err == nil {
				return absolute(filepath.Join(dir, catalogueName))
			}
		}
	}
	return absolute(filepath.Join(dirs[0], catalogueName))
}

// ReadCatalogue reads a file of registered plugins. A missing one is empty. Errors are *Error.
func ReadCatalogue(path string) ([]Plugin, error) {
	data, mode, err := readOurs(path, maxFile+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	const others = 0o022
	if err == nil && mode.Perm()&others != 0 {
		err = fmt.Errorf("users other than its owner can write it (%s), and so control what runs here: chmod go-w %s", mode.Perm(), path)
	}
	if err == nil && mode != 0 {
		err = owned.Check(path)
	}
	if err != nil {
		return nil, &Error{Problems: []Problem{{Place: path, Message: fmt.Sprintf("read the catalogue of plugins: %s",
			shown(err))}}}
	}
	c, root := Default(), &place{}
	root.below("version").Setting = settingAt("version")
	root.below("plugins").item = filePlaces().below("plugins.catalog[]")
	r := &reader{name: path, lookup: func(string) (string, bool) { return "", false }}
	r.put = func(s *Setting, at string, values []string, list bool) error {
		return c.put(s, strings.Replace(at, "plugins[", "plugins.catalog[", 1), values, list)
	}
	r.read(data, root)
	list := c.Plugins.Catalog
	fail := func(at, format string, args ...any) {
		r.problems = append(r.problems, Problem{Place: path, Path: at, Message: fmt.Sprintf(format, args...)})
	}
	checkCatalog("plugins", list, fail)
	if len(r.problems) > 0 {
		return nil, &Error{Problems: r.problems}
	}
	return list, nil
}

// ChangeCatalogue changes the file of registered plugins under a lock. It replaces the file as a whole, but not in a
// dry run or when change returns an error.
func ChangeCatalogue(path string, dryRun bool, change func([]Plugin) ([]Plugin, error)) error {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return fmt.Errorf("change the catalogue of plugins: %w", err)
	}
	defer func() { _ = lock.Close() }()
	list, err := ReadCatalogue(path)
	if err != nil {
		return err
	}
	if list, err = change(slices.Clone(list)); err != nil || dryRun {
		return err
	}
	slices.SortFunc(list, func(a, b Plugin) int { return strings.Compare(a.Name, b.Name) })
	text := bytes.NewBufferString(catalogueHead + "version: 1\nplugins:\n")
	for _, p := range list {
		text.WriteString(elementText("plugins.catalog", reflect.ValueOf(p), reflect.ValueOf(Plugin{})))
	}
	const everybodyReads = 0o644
	return wrap.Errorf(replace.File(path, text.Bytes(), everybodyReads), "write the catalogue of plugins")
}

// lockFile waits briefly for the lock. It follows no symbolic link, which another user may have made.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	const tries, pause = 50, 100 * time.Millisecond
	for range tries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return f, nil
		}
		<-time.After(pause)
	}
	_ = f.Close()
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Plugin returns the catalog's entry for a plugin, by name or program path; nil: there is none.
func (c *Config) Plugin(name string) *Plugin {
	for i := range c.Plugins.Catalog {
		p := &c.Plugins.Catalog[i]
		if p.Name == name || isPath(name) && p.Path != "" && absolute(p.Path) == absolute(name) {
			return p
		}
	}
	return nil
}

// WithRegistered returns the configuration with registered plugins after its own.
func (c *Config) WithRegistered(list []Plugin) *Config {
	other := *c
	other.Plugins.Catalog = slices.Clip(c.Plugins.Catalog)
	for _, p := range list {
		p.Registered = true
		other.Plugins.Catalog = append(other.Plugins.Catalog, p)
	}
	return &other
}

// Set sets a field of the plugin's entry by its key, such as memory_limit. 0 removes it.
func (p *Plugin) Set(key string, values ...string) error {
	s, owner := settingAt("plugins.catalog[]."+key), reflect.ValueOf(p).Elem()
	switch {
	case len(values) == 1 && values[0] == "0":
		s.fields(owner)[0].SetZero()
		return nil
	case itemTypes[s.Type] != nil:
		return s.putList(owner, values)
	}
	return s.put(owner, values[0])
}
