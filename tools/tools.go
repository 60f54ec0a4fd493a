// Package tools carries those of the scripts in this folder that the program itself needs.
package tools

import _ "embed"

// MakeONNX is make_onnx.py, which makes model.onnx of a model's published weights. It needs Python 3.8 and nothing
// else.
//
//go:embed make_onnx.py
var MakeONNX []byte
