package model

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// maxDenseBytes is the most that the weights of a layer behind the pooling may take.
const maxDenseBytes = 512 << 20

// A dense is a layer behind the pooling: activation(weight * v + bias).
type dense struct {
	file    string // in the folder
	in, out int
	weight  []float32 // out rows of in numbers
	bias    []float32 // out numbers, or none
	tanh    bool      // else the activation is the identity
}

// readDense reads a layer as sentence-transformers writes it: config.json and model.safetensors in a folder.
func readDense(f *folder, folder string) (*dense, error) {
	var config struct {
		In         int    `json:"in_features"`
		Out        int    `json:"out_features"`
		Bias       *bool  `json:"bias"`
		Activation string `json:"activation_function"`
	}
	name := path.Join(folder, "config.json")
	if found, err := f.readJSON(name, &config); err != nil || !found {
		return nil, errors.Join(err, fmt.Errorf("read the settings of a dense layer %s", name))
	}
	d := &dense{file: path.Join(folder, "model.safetensors"), in: config.In, out: config.Out}
	switch config.Activation[strings.LastIndexByte(config.Activation, '.')+1:] {
	case "Tanh", "": // sentence-transformers takes Tanh where nothing is stated
		d.tanh = true
	case "Identity":
	default:
		return nil, fmt.Errorf("%s: activation_function %q is neither Tanh nor Identity", name, config.Activation)
	}
	data, err := f.read(d.file, maxDenseBytes)
	if err != nil {
		return nil, fmt.Errorf("%w; a layer whose weights are in pytorch_model.bin is not read: that file can run code", err)
	}
	if d.weight, err = tensor(data, "linear.weight", d.out, d.in); err != nil {
		return nil, fmt.Errorf("%s: %w", d.file, err)
	}
	if config.Bias == nil || *config.Bias {
		if d.bias, err = tensor(data, "linear.bias", d.out); err != nil {
			return nil, fmt.Errorf("%s: %w", d.file, err)
		}
	}
	return d, nil
}

// tensor reads one tensor of a safetensors file, as 32-bit numbers. The shape must be the one that is wanted.
func tensor(data []byte, name string, shape ...int) ([]float32, error) {
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return nil, errors.New("it is no safetensors file")
	}
	header, body := data[8:8+binary.LittleEndian.Uint64(data)], data[8+binary.LittleEndian.Uint64(data):]
	tensors := map[string]json.RawMessage{}
	if err := json.Unmarshal(header, &tensors); err != nil {
		return nil, fmt.Errorf("parse its header: %w", err)
	}
	var is struct {
		Type    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(tensors[name], &is); err != nil {
		return nil, fmt.Errorf("there is no tensor %s in it", name)
	}
	if !slices.Equal(is.Shape, shape) {
		return nil, fmt.Errorf("%s has the shape %d, and config.json says %d", name, is.Shape, shape)
	}
	count := 1
	for _, n := range shape {
		if n < 1 || n > 1<<20 {
			return nil, fmt.Errorf("%s has the shape %d", name, shape)
		}
		count *= n
	}
	size := map[string]int{"F32": 4, "F16": 2, "BF16": 2}[is.Type]
	if size == 0 {
		return nil, fmt.Errorf("%s is of the type %s, and not F32, F16 or BF16", name, is.Type)
	}
	begin, end := is.Offsets[0], is.Offsets[1]
	if begin < 0 || end > len(body) || end-begin != count*size {
		return nil, fmt.Errorf("%s lies outside of the file", name)
	}
	numbers := make([]float32, count)
	for i, raw := 0, body[begin:end]; i < count; i, raw = i+1, raw[size:] {
		switch is.Type {
		case "F32":
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw))
		case "BF16":
			numbers[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw)) << 16)
		default:
			numbers[i] = half(binary.LittleEndian.Uint16(raw))
		}
		if x := float64(numbers[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("number %d of %s is not finite", i, name)
		}
	}
	return numbers, nil
}

// half is a 16-bit floating point number as a 32-bit one.
func half(bits uint16) float32 {
	sign, exponent, fraction := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return float32(sign * math.Ldexp(fraction, -24))
	case 31:
		return float32(math.NaN()) // infinite, or no number: neither is a weight
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// apply returns what the layer makes of a vector.
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
