package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"
)

// providers maps users' names of execution providers to the library's names.
var providers = map[string]string{
	"cpu":      "CPUExecutionProvider",
	"cuda":     "CUDAExecutionProvider",
	"tensorrt": "TensorrtExecutionProvider",
	"openvino": "OpenVINOExecutionProvider",
	"coreml":   "CoreMLExecutionProvider",
}

// Further choices of a provider.
const (
	providerCPU  = "cpu"
	providerAuto = "auto" // CUDA if the library and the machine have it, or else the CPU
)

// useProvider adds the chosen provider to a session's options, and returns its name.
func useProvider(options *ort.SessionOptions, library, chosen string) (string, error) {
	if chosen == "" || chosen == providerCPU {
		return providerCPU, nil
	}
	offered := providersOf(library)
	if chosen == providerAuto {
		if slices.Contains(offered, "cuda") && appendProvider(options, "cuda") == nil {
			return "cuda", nil
		}
		return providerCPU, nil
	}
	if _, ok := providers[chosen]; !ok {
		return "", fmt.Errorf("provider %q is not known: want auto, cpu, cuda, tensorrt, openvino or coreml", chosen)
	}
	if !slices.Contains(offered, chosen) {
		return "", fmt.Errorf("provider %s: the ONNX Runtime library %s has only %s; use one that was built for %s, or provider: auto",
			chosen, library, strings.Join(offered, ", "), chosen)
	}
	if err := appendProvider(options, chosen); err != nil {
		return "", fmt.Errorf("provider %s: the library has it, but it does not work here: %w", chosen, err)
	}
	return chosen, nil
}

func appendProvider(options *ort.SessionOptions, name string) error {
	switch name {
	case "cuda":
		return appendCUDA(options)
	case "tensorrt":
		own, err := ort.NewTensorRTProviderOptions()
		if err != nil {
			return err
		}
		return errors.Join(options.AppendExecutionProviderTensorRT(own), own.Destroy())
	case "openvino":
		return options.AppendExecutionProviderOpenVINO(nil)
	default: // coreml
		return options.AppendExecutionProviderCoreMLV2(nil)
	}
}

func appendCUDA(options *ort.SessionOptions) error {
	own, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	// TF32 rounds factors to 10 bits, which would change the vectors.
	if err := own.Update(map[string]string{"use_tf32": "0"}); err != nil {
		return errors.Join(err, own.Destroy())
	}
	return errors.Join(options.AppendExecutionProviderCUDA(own), own.Destroy())
}
