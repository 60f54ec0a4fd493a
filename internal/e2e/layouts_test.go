//go:build linux

package e2e

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// TestModels_ByThePaperAlone: who pastes the name and the flags of a row of docs/models.md gets the model from a hub
// that serves it as it is published, and the vectors of the reference; for models of five families.
func TestModels_ByThePaperAlone(t *testing.T) {
	t.Parallel()
	all := onnxtest.ReadLayouts(t, "../../plugins/onnx/model/testdata")
	hub, work := t.TempDir(), t.TempDir()
	families := map[string]*onnxtest.Layout{
		"intfloat/e5-small-v2": nil, "jinaai/jina-embeddings-v2-base-en": nil, "Alibaba-NLP/gte-base-en-v1.5": nil,
		"prithivida/Splade_PP_en_v1": nil, "cross-encoder/ms-marco-MiniLM-L6-v2": nil,
	}
	for i := range all.Cases {
		l := &all.Cases[i]
		if _, one := families[l.Hub]; one {
			families[l.Hub] = l
			l.Write(t, filepath.Join(hub, l.Hub, "resolve", "main"))
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(hub)))
	defer server.Close()
	paper, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	// as a reader of the page types it
	typed := func(line string) (stdout, stderr string, err error) {
		command := exec.CommandContext(t.Context(), "bash", "-c", line)
		command.Dir = work
		command.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "EMBEDSIDECAR_HUB="+server.URL,
			"EMBEDSIDECAR_MODEL_DIR="+work, "EMBEDSIDECAR_PLUGIN_DIR="+programs, "EMBEDSIDECAR_THREADS=1",
			"EMBEDSIDECAR_ONNXRUNTIME="+onnxtest.Library(t))
		var said strings.Builder
		command.Stderr = &said
		out, err := command.Output()
		return string(out), said.String(), err
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]*\\| (?:`(--[^`]*)`)?")
	tried := 0
	for _, match := range row.FindAllStringSubmatch(string(paper), -1) {
		l := families[match[1]]
		if l == nil {
			continue
		}
		tried++
		pull := "embedsidecar models pull " + l.Hub + " --unpinned " + match[2]
		if out, said, err := typed(pull); err != nil || !strings.Contains(out, "imported") {
			t.Errorf("%s: %v: %s%s", pull, err, out, said)
			continue
		}
		name := filepath.Base(l.Hub)
		if l.Scores != nil {
			_, said, err := typed("embedsidecar embed --model " + name + " text")
			if err == nil || !strings.Contains(said, "reranker") {
				t.Errorf("%s as an embedder: %v: %s", name, err, said)
			}
			continue
		}
		for kind, want := range map[string]json.RawMessage{"document": l.Documents[1], "query": l.Queries[1]} {
			text := map[string]string{"document": all.Texts[1], "query": all.Queries[1]}[kind]
			out, said, err := typed("embedsidecar embed --model " + name + " --kind " + kind + " '" + text + "'")
			if err != nil {
				t.Errorf("%s: %v: %s", name, err, said)
				continue
			}
			got, wanted := numbers(out), numbers(string(want))
			for i := range min(len(got), len(wanted)) {
				if math.Abs(got[i]-wanted[i]) > 1e-5*max(1, math.Abs(wanted[i])) {
					t.Errorf("%s, a %s: number %d is %v, want %v", name, kind, i, got[i], wanted[i])
					break
				}
			}
			if len(got) != len(wanted) || len(got) == 0 {
				t.Errorf("%s, a %s: %d numbers, want %d", name, kind, len(got), len(wanted))
			}
		}
	}
	if tried != len(families) {
		t.Errorf("%d of %d models are in the paper", tried, len(families))
	}
}

// numbers are those of a vector, dense or sparse, without their places.
func numbers(vector string) (values []float64) {
	for _, part := range regexp.MustCompile(`[\[{,]\s*(?:"?\d+"?\s*:\s*)?(-?[0-9.e+-]+)`).FindAllStringSubmatch(vector, -1) {
		var x float64
		if json.Unmarshal([]byte(part[1]), &x) == nil {
			values = append(values, x)
		}
	}
	return values
}
