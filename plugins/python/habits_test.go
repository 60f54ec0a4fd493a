package python

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
)

// habits is a plugin with common Python idioms, as authors write them.
const habits = `#
import os, sys, urllib.error, urllib.request
from embedsidecar_embedder import *
os.write(1, b"a library greets\n")  # unbuffered, and long before serve

async def later(texts):
    if texts == ["async exit"]:
        sys.exit(3)
    return [[float(len(t)), 1] for t in texts]

Refused = type("Refused", (type("ConnectionError", (Exception,), {}),), {})  # like that of requests
OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})  # like that of PyTorch
Mine = type("Mine", (Again,), {})

class Habits:
    def describe(self):
        if os.environ.get("EMBEDSIDECAR_PLUGIN_LEAVES"):
            sys.exit(3)
        return Info("habits", "1", [Model("m", "habits-fingerprint", dims=2)])

    def embed(self, model, kind, texts):
        return {
            "generator": lambda: ([float(len(t)), 1] for t in texts),
            "map": lambda: map(lambda t: (len(t), 1), texts),
            "async": lambda: later(texts),
            "async exit": lambda: later(texts),
            "leave": lambda: sys.exit(3),
            "break off": lambda: exec("raise KeyboardInterrupt"),
            "gives none": lambda: None,
            "gives pairs": lambda: {t: [1, 1] for t in texts},
            "one vector": lambda: [1.0],
            "nested": lambda: [[[1.0, 1.0]]],
            "words": lambda: [["1", "1"]],
            "more": lambda: [[1, 1], [1, 1]],
            "no backend": lambda: urllib.request.urlopen("http://127.0.0.1:1/"),
            "late": lambda: exec("raise TimeoutError('in time')"),
            "of a library": lambda: exec("raise Refused"),
            "bad request": lambda: exec("raise urllib.error.HTTPError('http://x', 400, 'no', {}, None)"),
            "no memory": lambda: exec("raise OutOfMemoryError"),
            "long words": lambda: exec("raise Mine('<p>' * 100000 + chr(0xd800), delay=3)"),
            "long error": lambda: [Answer(error=TextError("retry_later", "<p>" * 100000, delay=3))],
        }[texts[0]]()

serve(Habits())
`

func TestHabits(t *testing.T) {
	t.Parallel()
	h := start(t, habits)
	for _, text := range []string{"generator", "map", "async"} {
		results, err := h.Embed(t.Context(), embed.Document, []string{text})
		if err != nil || len(results[0].Vector) != 2 || results[0].Vector[0] != float32(len(text)) {
			t.Errorf("%s: %v, %v", text, results, err)
		}
	}
	for text, want := range map[string]string{
		"leave": "SystemExit in embed", "break off": "KeyboardInterrupt in embed",
		"async exit":  "SystemExit in an async function",
		"gives none":  "embed returned nothing, want one answer for each of the 1 texts",
		"gives pairs": "embed returned a dict",
		"one vector":  "embed returned a float as a vector, want 2 numbers", "nested": "a vector of 1 numbers, want 2",
		"words": "a vector that holds a str", "more": "2 answers to 1 texts",
	} {
		_, err := h.Embed(t.Context(), embed.Document, []string{text})
		class, code := embed.Classify(err)
		if class != embed.Data || code != "internal" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]embed.Class{
		"no backend": embed.Transient, "late": embed.Transient, "of a library": embed.Transient,
		"bad request": embed.Data, "no memory": embed.Resource, "long words": embed.Transient,
	} {
		_, err := h.Embed(t.Context(), embed.Document, []string{text})
		if class, _ := embed.Classify(err); class != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if results, err := h.Embed(t.Context(), embed.Document, []string{"long error"}); err != nil {
		t.Error(err)
	} else if _, code := embed.Classify(results[0].Err); code != "retry_later" {
		t.Errorf("a long message: %v", results[0].Err)
	}
	if results, err := h.Embed(t.Context(), embed.Document, []string{"async"}); err != nil || results[0].Err != nil {
		t.Errorf("after an exit in the event loop: %v, %v", results, err)
	}
}

// A plugin that exits in describe must not leave its host waiting.
func TestHabits_ExitInDescribe(t *testing.T) {
	t.Parallel()
	path, env := program(t, habits)
	env["EMBEDSIDECAR_PLUGIN_LEAVES"] = "1"
	_, err := plugins.Start(t, host.Options{Path: path, Env: env}).Describe(t.Context())
	if class, code := embed.Classify(err); class != embed.Configuration || code != "describe" ||
		!strings.Contains(err.Error(), "SystemExit in describe") {
		t.Errorf("got %v", err)
	}
}
