// Package house checks that the Makefile, the container files, the examples and the documentation refer to things that
// exist. Without a container engine, these are the only checks of the Dockerfile and the compose file.
package house

import (
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../.."

// read returns a file of the repository; the path is relative to its root.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// exists reports whether a path of the repository exists, relative to its root.
func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(path)))
	return err == nil
}

// files returns the paths of all files of the repository, except those that .gitignore excludes, and git's own.
func files(t *testing.T) []string {
	t.Helper()
	skip := []string{".git"}
	var skipFiles []string
	for line := range strings.Lines(read(t, ".gitignore")) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutSuffix(strings.TrimPrefix(line, "/"), "/"); ok {
			skip = append(skip, name)
		} else if line != "" && !strings.HasPrefix(line, "#") {
			skipFiles = append(skipFiles, strings.TrimPrefix(line, "/"))
		}
	}
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if slices.Contains(skip, name) || slices.Contains(skip, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		for _, pattern := range skipFiles {
			if ok, err := filepath.Match(pattern, entry.Name()); err != nil || ok {
				return err
			}
		}
		if entry.Type().IsRegular() {
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// papers are the documentation files.
func papers(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(path string) bool {
		return !strings.HasSuffix(path, ".md") || strings.Contains(path, "testdata/")
	})
}

// nobodys reports whether a host is a private or example address, such as 10.0.0.1.
func nobodys(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.IsPrivate() || addr.IsLinkLocalUnicast())
}

// TestHosts keeps local machines and mirrors out of the tree. After a review, add new hosts of links here.
func TestHosts(t *testing.T) {
	t.Parallel()
	public := []string{
		"apache.org", "cohere.com", "datatracker.ietf.org", "editorconfig.org", "example.com", "example.net", "example.org",
		"github.com", "go.dev", "modelcontextprotocol.io",
		"golang.org", "huggingface.co", "keepachangelog.com", "onnxruntime.ai", "openai.com", "opencontainers.org",
		"pkg.go.dev", "postgresql.org",
		"prometheus.io", "protobuf.dev", "semver.org", "unicode.org", "voyageai.com", "wikipedia.org", "yaml.org", "grpc.io",
		"arxiv.org", "w3.org", "json-schema.org", "openapi-ts.dev",
		// of docs/services.md
		"alibabacloud.com", "aliyuncs.com", "amazon.com", "amazonaws.com", "azure.com", "cloudflare.com", "databricks.com",
		"deepinfra.com", "fireworks.ai", "google.dev", "googleapis.com", "huggingface.cloud", "jina.ai",
		"litellm.ai", "lmstudio.ai", "microsoft.com", "mistral.ai", "nebius.com", "nvidia.com", "openrouter.ai",
		"scaleway.ai", "scaleway.com", "siliconflow.com", "together.ai", "together.xyz", "vllm.ai",
	}
	// one word: a service of the compose file, or a fictional host
	local := regexp.MustCompile(`^(localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0|[a-z]+)$`)
	link := regexp.MustCompile(`https?://[^\s"'` + "`" + `<>)\]},;|\\]+`)
	for _, path := range files(t) {
		content := read(t, path)
		if path == "LICENSE" || path == "go.sum" || strings.Contains(path, "testdata/") || !utf8.ValidString(content) {
			continue
		}
		for _, found := range link.FindAllString(content, -1) {
			target, err := url.Parse(found)
			if err != nil {
				continue // a pattern such as http://%s, or a test of bad input
			}
			host := target.Hostname()
			allowed := host == "" || local.MatchString(host) || nobodys(host) || strings.HasSuffix(host, ".example") ||
				strings.ContainsAny(host, "$%{*")
			for _, name := range public {
				allowed = allowed || host == name || strings.HasSuffix(host, "."+name)
			}
			if !allowed {
				t.Errorf("%s names the host %s in %s: if it is public, add it to this test", path, host, found)
			}
		}
	}
}

// TestMachinePaths looks for paths that exist only on the author's machine.
func TestMachinePaths(t *testing.T) {
	t.Parallel()
	personal := regexp.MustCompile(`(?:^|[\s"'=:(])(?:/home/|/Users/|/root/|[A-Z]:\\Users\\)([\w.-]+)`)
	anybody := []string{"somebody", "user", "you"}
	for _, path := range files(t) {
		content := read(t, path)
		if strings.HasPrefix(path, "testenv/house/") || strings.Contains(path, "testdata/") || !utf8.ValidString(content) {
			continue
		}
		number := 0
		for line := range strings.Lines(content) {
			number++
			if match := personal.FindStringSubmatch(line); match != nil && !slices.Contains(anybody, match[1]) {
				t.Errorf("%s:%d names a path in a home folder: %s", path, number, strings.TrimSpace(line))
			}
		}
	}
}

// TestLinks checks links between documentation pages and to files.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, paper := range papers(t) {
		for _, match := range link.FindAllStringSubmatch(read(t, paper), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if target == "" {
				target = filepath.Base(paper)
			}
			path := filepath.ToSlash(filepath.Join(filepath.Dir(paper), filepath.FromSlash(target)))
			if !exists(path) {
				t.Errorf("%s links to %s, which does not exist", paper, match[1])
				continue
			}
			if anchor != "" && strings.HasSuffix(path, ".md") && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s: %s has no such heading", paper, match[1], path)
			}
		}
	}
}

// anchors returns the link anchors of headings: lower case, words joined by hyphens, without punctuation.
func anchors(paper string) []string {
	signs := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var names []string
	for line := range strings.Lines(paper) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			name := signs.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}

// TestLicense checks the first and last words of the licence.
func TestLicense(t *testing.T) {
	t.Parallel()
	text := read(t, "LICENSE")
	for _, want := range []string{
		"Apache License", "Version 2.0, January 2004",
		"9. Accepting Warranty or Additional Liability.", "END OF TERMS AND CONDITIONS",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("LICENSE lacks %q", want)
		}
	}
	if lines := strings.Count(text, "\n"); lines < 200 {
		t.Errorf("LICENSE has %d lines: it is cut off", lines)
	}
}

// TestArchitecture_NamesEveryPackage checks that architecture.md lists every folder.
func TestArchitecture_NamesEveryPackage(t *testing.T) {
	t.Parallel()
	_, after, ok := strings.Cut(read(t, "docs/architecture.md"), "## Packages")
	list, _, ends := strings.Cut(after, "## ")
	if !ok || !ends {
		t.Fatal("docs/architecture.md has no list of packages")
	}
	known := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" \n,.:;()", r) })
	for _, path := range files(t) {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "internal/")
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") ||
			strings.HasPrefix(path, "tools/") {
			continue
		}
		// Indented entries omit their parent folder.
		if !slices.Contains(known, folder) && !slices.Contains(known, filepath.Base(folder)) &&
			!slices.Contains(known, "internal/"+folder) {
			t.Errorf("docs/architecture.md leaves out %s", folder)
			known = append(known, folder)
		}
	}
}

// TestArchitecture_NamesFunctionsThatAreThere checks that each file and function in architecture.md exists.
func TestArchitecture_NamesFunctionsThatAreThere(t *testing.T) {
	t.Parallel()
	_, after, ok := strings.Cut(read(t, "docs/architecture.md"), "| step | read |")
	table, _, ends := strings.Cut(after, "\n\n")
	if !ok || !ends {
		t.Fatal("docs/architecture.md has no table of functions to read")
	}
	var (
		code  strings.Builder
		bases []string
	)
	for _, name := range files(t) {
		bases = append(bases, filepath.Base(name))
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			code.WriteString(read(t, filepath.ToSlash(name)))
		}
	}
	for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1) {
		name := quoted[1]
		there := strings.Contains(code.String(), "func "+name+"(") || strings.Contains(code.String(), ") "+name+"(")
		if strings.Contains(name, ".") {
			there = slices.Contains(bases, filepath.Base(name))
		}
		if !there {
			t.Errorf("docs/architecture.md names %s, which does not exist", name)
		}
	}
}
