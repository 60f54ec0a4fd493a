// Package scaffold writes a new plugin project, which builds, keeps the contract and tests that.
package scaffold

import (
	"bytes"
	stdembed "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/embedsidecar/embedsidecar/plugins"
)

//go:embed templates
var templates stdembed.FS

// Languages are the languages with a template.
var Languages = []string{"go", "python"}

// Project says what to write.
type Project struct {
	Name     string // of the plugin; its program is embedsidecar-NAME
	Language string // one of Languages
	Version  string // of the SDK's module, "v1.2.3"
	Checkout string // folder of a clone with the SDK, used instead of a version; "": none
	Go       string // the SDK's minimum version of Go, "1.26"
}

// Module is the plugin's name as a Python module.
func (p Project) Module() string { return "embedsidecar_" + strings.ReplaceAll(p.Name, "-", "_") }

var validName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Write writes the project into a folder, which must be empty or not exist, and returns the names of its files.
func Write(dir string, p Project) ([]string, error) {
	const longest = 40
	if !validName.MatchString(p.Name) || len(p.Name) > longest {
		return nil, fmt.Errorf("%q is no name for a plugin: want lower case letters, digits and single hyphens, a letter first, at most %d", p.Name, longest)
	}
	root := path.Join("templates", p.Language)
	entries, err := templates.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("there is no template for the language %q: choose from %s", p.Language,
			strings.Join(Languages, ", "))
	}
	existing, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(existing) > 0 {
		return nil, fmt.Errorf("the folder %s is not empty", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources, for everybody
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		text, err := template.ParseFS(templates, path.Join(root, entry.Name()))
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(strings.TrimSuffix(entry.Name(), ".tmpl"), "MODULE", p.Module())
		if err := write(filepath.Join(dir, name), text, p); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	if p.Language == "go" {
		sources, err := writeExample(dir, p)
		return append(files, sources...), err
	}
	return files, nil
}

// writeExample writes the SDK's example under the project's name.
func writeExample(dir string, p Project) (files []string, err error) {
	const folder = "sdk/example"
	entries, err := plugins.GoExample.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	renamed := strings.NewReplacer("embedsidecar-example", "embedsidecar-"+p.Name, `"example"`, strconv.Quote(p.Name))
	for _, entry := range entries {
		source, err := plugins.GoExample.ReadFile(path.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		//nolint:gosec // sources, for everybody
		err = os.WriteFile(filepath.Join(dir, entry.Name()), []byte(renamed.Replace(string(source))), 0o644)
		if err != nil {
			return nil, err
		}
		files = append(files, entry.Name())
	}
	return files, nil
}

func write(name string, text *template.Template, p Project) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // sources, for everybody
	if err != nil {
		return err
	}
	return errors.Join(text.Execute(f, p), f.Close())
}

// modulePath is the Go module of the SDK.
const modulePath = "github.com/embedsidecar/embedsidecar"

// released matches the version of a release.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// UnreleasedError means that a program has no matching release of the SDK.
type UnreleasedError struct{}

func (*UnreleasedError) Error() string {
	return "this build is no release, so there is no released SDK that belongs to it"
}

// Hints returns what the user can do.
func (*UnreleasedError) Hints() []string { return []string{"name a clone of embedsidecar with --sdk"} }

// From sets the source of the SDK: the given clone of embedsidecar; or, for an unreleased program, the clone that it
// lies in; or else the release of the program's version.
func (p *Project) From(checkout, version string) error {
	p.Checkout, p.Version = checkout, version
	isRelease := released.MatchString(version)
	if checkout == "" && !isRelease {
		p.Checkout = clone()
	}
	if p.Checkout == "" {
		if !isRelease {
			return &UnreleasedError{}
		}
		return nil
	}
	folder, err := filepath.Abs(p.Checkout)
	if err != nil {
		return err
	}
	if !isClone(folder) {
		return fmt.Errorf("--sdk: %s is not a clone of embedsidecar", p.Checkout)
	}
	p.Checkout, p.Version = folder, "v0.0.0"
	return nil
}

// clone returns the clone of embedsidecar that contains this program; "": none.
func clone() string {
	executable, err := os.Executable()
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(executable); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if isClone(dir) {
			return dir
		}
	}
	return ""
}

func isClone(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.HasPrefix(content, fmt.Appendf(nil, "module %s\n", modulePath))
}
