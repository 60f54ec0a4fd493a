package model

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
)

// maxDenseBytes is the size limit of a dense layer's weights.
const maxDenseBytes = 512 << 20

// A dense is a layer after the pooling: activation(weight * v + bias).
type dense struct {
	file    string // in the folder
	in, out int
	weight  []float32 // out rows of in numbers
	bias    []float32 // out numbers, or none
	tanh    bool      // otherwise the identity
}

// readDense reads a layer in the format of sentence-transformers: a folder with config.json and model.safetensors.
func readDense(f *folder.Folder, in string) (*dense, error) {
	var config struct {
		In         int    `json:"in_features"`
		Out        int    `json:"out_features"`
		Bias       *bool  `json:"bias"`
		Activation string `json:"activation_function"`
	}
	name := path.Join(in, "config.json")
	if found, err := f.ReadJSON(name, &config); err != nil || !found {
		return nil, errors.Join(err, fmt.Errorf("read the settings of a dense layer %s", name))
	}
	d := &dense{file: path.Join(in, "model.safetensors"), in: config.In, out: config.Out}
	switch config.Activation[strings.LastIndexByte(config.Activation, '.')+1:] {
	case "Tanh", "": // Tanh is the default of sentence-transformers
		d.tanh = true
	case "Identity":
	default:
		return nil, fmt.Errorf("%s: activation_function %q is neither Tanh nor Identity", name, config.Activation)
	}
	data, err := f.Read(d.file, maxDenseBytes)
	if err != nil {
		return nil, fmt.Errorf("%w; a layer whose weights are in pytorch_model.bin is not read: that file can run code", err)
	}
	tensors, err := safetensors.Read(bytes.NewReader(data), int64(len(data)), "linear.weight", "linear.bias")
	if err == nil {
		d.weight, err = tensorIn(tensors, "linear.weight", d.out, d.in)
	}
	if err == nil && (config.Bias == nil || *config.Bias) {
		d.bias, err = tensorIn(tensors, "linear.bias", d.out)
	}
	return d, wrap.Errorf(err, "%s", d.file)
}

// tensorIn returns the numbers of a tensor, which must have the given shape.
func tensorIn(tensors map[string]*safetensors.Tensor, name string, shape ...int) ([]float32, error) {
	t := tensors[name]
	if t == nil {
		return nil, fmt.Errorf("there is no tensor %s in it", name)
	}
	if !slices.Equal(t.Shape, shape) || t.Floats == nil {
		return nil, fmt.Errorf("%s has the shape %d, and config.json says %d", name, t.Shape, shape)
	}
	return t.Floats, nil
}

// apply applies the layer to a vector.
func (d *dense) apply(v []float32) []float32 {
	result := make([]float32, d.out)
	for row := range result {
		sum := 0.0
		for i, w := range d.weight[row*d.in : (row+1)*d.in] {
			sum += float64(w) * float64(v[i])
		}
		if d.bias != nil {
			sum += float64(d.bias[row])
		}
		if d.tanh {
			sum = math.Tanh(sum)
		}
		result[row] = float32(sum)
	}
	return result
}
