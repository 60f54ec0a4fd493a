package scaffold

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// modulePath is where the SDK for Go lives.
const modulePath = "github.com/embedsidecar/embedsidecar"

// released is what the version of a release looks like.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// UnreleasedError means that there is no SDK to go with a program.
type UnreleasedError struct{}

func (*UnreleasedError) Error() string {
	return "this build is no release, so there is no released SDK that belongs to it"
}

// Hints returns the way out.
func (*UnreleasedError) Hints() []string { return []string{"name a clone of embedsidecar with --sdk"} }

// From says where the project has its SDK from: the clone of embedsidecar that is named or, for a program that is no
// release, the one that it lies in; else the release of the program's version.
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
		return fmt.Errorf("--sdk: %s is no clone of embedsidecar", p.Checkout)
	}
	p.Checkout, p.Version = folder, "v0.0.0"
	return nil
}

// clone returns the clone of embedsidecar that this program lies in; "" for none.
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
