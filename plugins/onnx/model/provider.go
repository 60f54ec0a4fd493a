package model

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
	const void *(*get_api)(uint32_t version);
	const char *(*get_version)(void);
} api_base;

// The interface is a table of functions that only grows at its end: these have had their places since version 1.6.
enum { GET_PROVIDERS = 125, RELEASE_PROVIDERS = 126 };
typedef void *(*get_providers_function)(char ***names, int *count);
typedef void *(*release_providers_function)(char **names, int count);

// library_providers returns the names of the processors that a loaded library was built for, or NULL.
static char **library_providers(const char *path, uint32_t version, int *count) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (library == NULL) return NULL;
	const api_base *(*get_base)(void) = (const api_base *(*)(void))dlsym(library, "OrtGetApiBase");
	void *const *api = get_base == NULL ? NULL : get_base()->get_api(version);
	char **names = NULL;
	if (api != NULL && ((get_providers_function)api[GET_PROVIDERS])(&names, count) != NULL) names = NULL;
	dlclose(library);
	return names;
}

static void release_providers(const char *path, uint32_t version, char **names, int count) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (library == NULL) return;
	const api_base *(*get_base)(void) = (const api_base *(*)(void))dlsym(library, "OrtGetApiBase");
	void *const *api = get_base == NULL ? NULL : get_base()->get_api(version);
	if (api != NULL) ((release_providers_function)api[RELEASE_PROVIDERS])(names, count);
	dlclose(library);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// providers are the processors a network can run on, by the name a user gives, with the library's own name for them.
var providers = map[string]string{
	"cpu":      "CPUExecutionProvider",
	"cuda":     "CUDAExecutionProvider",
	"tensorrt": "TensorrtExecutionProvider",
	"openvino": "OpenVINOExecutionProvider",
	"coreml":   "CoreMLExecutionProvider",
}

// Choices of a provider that are none of their own.
const (
	providerCPU  = "cpu"
	providerAuto = "auto" // CUDA where the library and the machine have it, or else the CPU
)

// providersOf returns what a loaded library was built for, by our names.
func providersOf(path string) []string {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var count C.int
	list := C.library_providers(name, minimumMinor, &count)
	if list == nil {
		return []string{providerCPU}
	}
	defer C.release_providers(name, minimumMinor, list, count)
	var found []string
	for _, c := range unsafe.Slice(list, int(count)) {
		theirs := C.GoString(c)
		for ours, known := range providers {
			if known == theirs {
				found = append(found, ours)
			}
		}
	}
	slices.Sort(found)
	return found
}

// useProvider makes a session run on the processor that the user chose, and returns which that is.
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
	// TF32 rounds a product's factors to 10 bits: other vectors than everybody else's.
	if err := own.Update(map[string]string{"use_tf32": "0"}); err != nil {
		return errors.Join(err, own.Destroy())
	}
	return errors.Join(options.AppendExecutionProviderCUDA(own), own.Destroy())
}
