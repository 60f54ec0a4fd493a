package onnxtest

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Layouts are well-known models as they are published: plugins/onnx/model/testdata/layouts/make.py made their files,
// and their vectors by numpy.
type Layouts struct {
	Texts, Queries []string
	Cases          []Layout
}

// A Layout is the files of one model.
type Layout struct {
	Hub, Licence, Also, Note, Kind string
	Params                         float64 // millions
	Pool                           string
	Prefix                         [2]string // of documents and of queries
	Static                         string    // the layout of the plugin static; "": not static
	Weights                        string    // the folder of ../architectures with model.safetensors; "": among the files
	Files, Binary                  map[string]string
	State                          struct { // what a user says
		Pooling, File  string
		QueryPrefix    *string `json:"query_prefix"`
		DocumentPrefix *string `json:"document_prefix"`
		Dims           int
		LayerNorm      *bool `json:"layer_norm"`
	}
	Card    bool     // only the model's card states the prefixes
	Refused []string // parts of the error; none: it runs
	Reason  string   // why it is refused, for the documentation
	Limit   int      // tokens that are read of a text

	Documents, Queries []json.RawMessage // vectors; of sparse models objects
	Scores             []float64

	testdata string
}

// ReadLayouts reads the layouts from the folder testdata of package model.
func ReadLayouts(t testing.TB, testdata string) (all Layouts) {
	t.Helper()
	content := Unzipped(t, filepath.Join(testdata, "layouts", "layouts.json.gz"))
	if err := json.Unmarshal([]byte(content), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Cases {
		all.Cases[i].testdata = testdata
	}
	return all
}

// Write writes the published files into a folder.
func (l *Layout) Write(t testing.TB, into string) {
	t.Helper()
	WriteFiles(t, into, l.Files)
	binary := map[string]string{}
	for name, content := range l.Binary {
		data, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			t.Fatal(err)
		}
		binary[name] = string(data)
	}
	if l.Weights != "" {
		const name = "model.safetensors"
		data, err := os.ReadFile(filepath.Join(l.testdata, "architectures", l.Weights, name))
		if err != nil {
			t.Fatal(err)
		}
		binary[name] = string(data)
	}
	WriteFiles(t, into, binary)
}
