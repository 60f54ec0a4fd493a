package model

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// The beginning of onnxruntime_c_api.h that has stayed as it is since version 1.0.
typedef struct {
	const void *(*get_api)(uint32_t version);
	const char *(*get_version)(void);
} api_base;

// library_version returns the version of the library, or NULL and what is wrong with it. The library stays loaded.
static const char *library_version(const char *path, const char **problem) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (library == NULL) {
		*problem = dlerror();
		return NULL;
	}
	const api_base *(*get_base)(void) = (const api_base *(*)(void))dlsym(library, "OrtGetApiBase");
	if (get_base == NULL) {
		*problem = "it has no OrtGetApiBase";
		return NULL;
	}
	return get_base()->get_version();
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// The version of ONNX Runtime whose interface this program is built for; it is part of every newer one.
const minimumMajor, minimumMinor = 1, 24

// checkVersion makes sure that the library can serve this program. The Go binding would find out too, but cannot say
// which version it found: it has unloaded the library by then.
func checkVersion(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var problem *C.char
	found := C.library_version(name, &problem)
	if found == nil {
		return errors.New(C.GoString(problem))
	}
	if version := C.GoString(found); !atLeast(version, minimumMajor, minimumMinor) {
		return fmt.Errorf("it is version %s, %d.%d or newer is needed", version, minimumMajor, minimumMinor)
	}
	return nil
}

// atLeast reports whether a version is of a release or newer.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	first, err1 := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (first > major || first == major && second >= minor)
}
