package model

// Options say what to open.
type Options struct {
	Folder  string // model folder: model.onnx, tokenizer.json, settings, SHA256SUMS
	Weights string // required SHA-256 of the weights; "": only that of SHA256SUMS
	Library string // shared library of ONNX Runtime, see FindLibrary
	Threads int    // threads that compute; 0: as many as there are CPUs for this process
	// Precision selects the weights: "fp32", or "int8" for model_int8.onnx. "": model.onnx of any precision.
	Precision string
	// Provider is the execution provider: "cpu" (the default), "auto", "cuda", "tensorrt", "openvino", "coreml", if the
	// library has it.
	Provider string
	Settings Settings // override the folder's
}

func threads(options Options) int {
	if options.Threads > 0 {
		return options.Threads
	}
	return usableCPUs()
}

// Settings are a user's settings, which override those of the model folder. The zero value overrides nothing. Each
// setting that can change a vector changes the fingerprint.
type Settings struct {
	Pooling   string // "mean", "cls", "last", or "splade" for a sparse vector; "": as the folder says
	Normalize *bool  // vectors of length 1
	MaxTokens int    // special tokens included, 3 or more; 0: as the folder says
	LayerNorm *bool  // normalize mean and variance before truncation, as some model cards do
	Truncate  string // side at which long texts are cut, "right" or "left"; "": as the folder says
	// numbers of a vector to keep, for a sparse one the largest; 0: all; normalized again if the whole vector was
	Dims           int
	DocumentPrefix *string // put before each document
	QueryPrefix    *string // put before each query
}
