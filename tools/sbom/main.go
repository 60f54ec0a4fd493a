// The program sbom writes the bill of materials of what it is given, in CycloneDX's JSON: of Go programs the modules
// they are linked with, of a Cargo.lock its crates, of a folder status.d its Debian packages, and whatever else is
// named.
//
//	go run ./tools/sbom -name embedsidecar:core -version 1.2.3 bin/embedsidecar plugins/onnx/tokenizers/shim/Cargo.lock /rootfs/var/lib/dpkg/status.d
//
// The same things give the same bytes: there is neither a time nor a serial number in it.
package main

import (
	"bufio"
	"cmp"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sbom: error:", err)
		os.Exit(1)
	}
}

// inventory is what was found, each thing once.
type inventory map[string]cyclonedx.Component

// add notes a library by its package URL.
func (i inventory) add(purl, name, version string, hashes ...cyclonedx.Hash) {
	c := cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version,
		PackageURL: purl,
	}
	if len(hashes) > 0 {
		c.Hashes = &hashes
	}
	i[purl] = c
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "embedsidecar", "what it is the bill of")
	version := flags.String("version", "", "its version")
	arch := flags.String("arch", "amd64", "architecture of Debian's packages")
	if err := flags.Parse(args); err != nil {
		return err
	}
	found := inventory{}
	for _, path := range flags.Args() {
		if err := found.look(path, *arch); err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
	}
	components := make([]cyclonedx.Component, 0, len(found))
	for _, c := range found {
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: *name, Type: cyclonedx.ComponentTypeContainer, Name: *name, Version: *version,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components = &components
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6)
}

// look adds what a path holds.
func (i inventory) look(path, arch string) error {
	if name, version, ok := strings.Cut(path, "@"); ok { // TYPE/NAME@VERSION, of what no tool knows
		i.add("pkg:"+path, name[strings.LastIndex(name, "/")+1:], version)
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return i.debian(path, arch)
	case filepath.Base(path) == "Cargo.lock":
		return i.crates(path)
	}
	return i.program(path)
}

// program adds the modules that a Go program is linked with, and Go itself.
func (i inventory) program(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		i.add("pkg:golang/"+m.Path+"@"+m.Version, m.Path, m.Version)
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	i.add("pkg:golang/stdlib@"+version, "stdlib", version)
	return nil
}

// crates adds the packages of a Cargo.lock that come from somewhere else.
func (i inventory) crates(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for block := range strings.SplitSeq(string(text), "[[package]]") {
		of := fields(strings.NewReader(block), " = ")
		if of["source"] == "" {
			continue // our own
		}
		i.add("pkg:cargo/"+of["name"]+"@"+of["version"], of["name"], of["version"],
			cyclonedx.Hash{Algorithm: cyclonedx.HashAlgoSHA256, Value: of["checksum"]})
	}
	return nil
}

// debian adds the packages of a folder status.d.
func (i inventory) debian(dir, arch string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		of := fields(f, ": ")
		_ = f.Close()
		name, version := of["Package"], of["Version"]
		if name == "" || version == "" {
			return fmt.Errorf("%s tells of no package", file)
		}
		i.add("pkg:deb/debian/"+name+"@"+strings.ReplaceAll(version, "+", "%2B")+"?arch="+cmp.Or(of["Architecture"], arch),
			name, version)
	}
	return nil
}

// fields reads lines of a name and a value, without quotes.
func fields(r io.Reader, between string) map[string]string {
	of := map[string]string{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), between); ok && !strings.HasPrefix(name, " ") {
			of[name] = strings.Trim(value, `"`)
		}
	}
	return of
}
