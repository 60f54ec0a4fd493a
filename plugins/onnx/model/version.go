package model

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// The start of onnxruntime_c_api.h, which has not changed since version 1.0.
typedef struct {
	const void *(*get_api)(uint32_t version);
	const char *(*get_version)(void);
} api_base;

// The interface is an append-only table of functions: these have had their indices since version 1.6.
enum { GET_PROVIDERS = 125, RELEASE_PROVIDERS = 126 };
typedef void *(*get_providers_function)(char ***names, int *count);
typedef void *(*release_providers_function)(char **names, int count);

// base loads a library and returns the start of its interface, or NULL and the problem. The library stays loaded.
static const api_base *base(const char *path, const char **problem) {
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
	return get_base();
}

// functions returns the interface of a version of a loaded library, or NULL.
static void *const *functions(const char *path, uint32_t version) {
	const char *problem;
	const api_base *found = base(path, &problem);
	return found == NULL ? NULL : found->get_api(version);
}

// library_providers returns the names of a loaded library's execution providers, or NULL.
static char **library_providers(const char *path, uint32_t version, int *count) {
	void *const *api = functions(path, version);
	char **names = NULL;
	if (api != NULL && ((get_providers_function)api[GET_PROVIDERS])(&names, count) != NULL) names = NULL;
	return names;
}

static void release_providers(const char *path, uint32_t version, char **names, int count) {
	void *const *api = functions(path, version);
	if (api != NULL) ((release_providers_function)api[RELEASE_PROVIDERS])(names, count);
}

// library_version returns the version of the library, or NULL and the problem.
static const char *library_version(const char *path, const char **problem) {
	const api_base *found = base(path, problem);
	return found == NULL ? NULL : found->get_version();
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// The version of ONNX Runtime that this program is built for; newer versions include its interface.
const minimumMajor, minimumMinor = 1, 24

// checkVersion checks that the library is new enough. The Go binding also checks it, but cannot report the version,
// because it has unloaded the library by then.
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

// atLeast reports whether a version is at least major.minor.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	first, err1 := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (first > major || first == major && second >= minor)
}

// providersOf returns a loaded library's providers, by our names.
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
