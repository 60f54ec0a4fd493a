package model_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// short makes the folder of an 8-bit model: 64 numbers of each token times a matrix with a number of columns.
func short(t *testing.T, columns, wrongFrom int) string {
	t.Helper()
	m := onnxtest.Letters(64, 1)
	m.WrongFrom = wrongFrom
	for row := range 64 {
		line := make([]int8, columns)
		for column := range line {
			line[column] = int8((row*31+column*17)%255 - 127)
		}
		m.Times = append(m.Times, line)
	}
	files := m.Files()
	files["sentence_bert_config.json"] = `{"max_seq_length": 60}`
	files["config.json"] = strings.Replace(files["config.json"], `"hidden_size": 64`, `"hidden_size": 0`, 1)
	return writeFolder(t, files)
}

// A network that computes other vectors for many rows, on any CPU.
func TestOpen_RefusesAFaultyNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		wrongFrom int
		refused   bool
	}{
		"right": {0, false}, "wrong from 32 rows on": {32, true}, "wrong from 60 rows on": {60, true},
	} {
		_, err := openWith(t, model.Options{Folder: short(t, 24, c.wrongFrom), Threads: 2, Precision: "int8"})
		var wrong *model.WrongError
		if errors.As(err, &wrong) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if c.refused && (!strings.Contains(err.Error(), "use ONNX Runtime "+model.KnownRight) ||
			!strings.Contains(err.Error(), "precision fp32")) {
			t.Errorf("%s: the way out is missing: %v", name, err)
		}
	}
}

// The recommended version is that of the scripts.
func TestKnownRight(t *testing.T) {
	script, err := os.ReadFile("../../../tools/fetch-onnxruntime.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), "version=${1:-"+model.KnownRight+"}") {
		t.Errorf("tools/fetch-onnxruntime.sh does not fetch %s", model.KnownRight)
	}
}
