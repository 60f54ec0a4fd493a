package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func TestRun(t *testing.T) {
	t.Parallel()
	status := filepath.Join(t.TempDir(), "status.d")
	if err := os.Mkdir(status, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(status, "libc6"),
		[]byte("Package: libc6\nVersion: 2.36-9+deb12u9\nArchitecture: arm64\nDescription: a\n b: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-name", "image", "-version", "1", self, "../../plugins/onnx/tokenizers/shim/Cargo.lock", status,
		"generic/onnxruntime@1.2.3",
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(args, out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same things give two bills")
	}
	var bom cyclonedx.BOM
	if err := json.Unmarshal(first.Bytes(), &bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]cyclonedx.Component{}
	for _, c := range *bom.Components {
		found[c.Name] = c
	}
	for name, purl := range map[string]string{
		"libc6": "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=arm64", "onnxruntime": "pkg:generic/onnxruntime@1.2.3",
		"tokenizers": "pkg:cargo/tokenizers@" + found["tokenizers"].Version, "stdlib": "pkg:golang/stdlib@" +
			found["stdlib"].Version,
		"github.com/CycloneDX/cyclonedx-go": "pkg:golang/github.com/CycloneDX/cyclonedx-go@" +
			found["github.com/CycloneDX/cyclonedx-go"].Version,
	} {
		if c := found[name]; c.PackageURL != purl || c.Version == "" {
			t.Errorf("%s is %q of version %q, want %q", name, c.PackageURL, c.Version, purl)
		}
	}
	if _, ours := found["embedsidecar-tokenizers"]; ours {
		t.Error("our own crate is not from somewhere else")
	}
	if err := run([]string{filepath.Join(status, "libc6")}, &first); err == nil {
		t.Error("a text passes for a program")
	}
}
