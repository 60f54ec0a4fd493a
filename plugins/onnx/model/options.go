package model

// Options say what to open.
type Options struct {
	Folder  string // model folder: model.onnx, tokenizer.json, settings, SHA256SUMS
	Weights string // sha256 that the file of weights must have; "": what SHA256SUMS says
	Library string // shared library of ONNX Runtime, see FindLibrary
	Threads int    // threads that compute; 0: as many as there are CPUs for this process
	// Precision is which weights to use: "fp32", or "int8" for model_int8.onnx. "": model.onnx, whatever it holds.
	Precision string
	// Provider is what computes: "cpu" (the default), "auto", "cuda", "tensorrt", "openvino", "coreml", where the
	// library has it.
	Provider string
	Settings Settings // in place of the folder's
}

func threads(options Options) int {
	if options.Threads > 0 {
		return options.Threads
	}
	return usableCPUs()
}

// Settings are a user's own, in place of what the model folder says. The zero value changes nothing. Each of them
// that changes a vector changes the fingerprint.
type Settings struct {
	Pooling   string // "mean", "cls", "last", or "splade" for a sparse vector; "": as the folder says
	Normalize *bool  // vectors of length 1
	MaxTokens int    // special tokens included, 3 or more; 0: as the folder says
	LayerNorm *bool  // a vector's mean 0 and its variance 1, before some numbers are kept, as some models' cards do
	Truncate  string // the side that is cut off of a longer text, "right" or "left"; "": as the folder says
	// numbers of a vector that are kept, of a sparse one the largest; 0: all. What is kept is made length 1 again if the
	// whole was
	Dims           int
	DocumentPrefix *string // put before each document
	QueryPrefix    *string // put before each query
}
