//go:build tokenizers && cgo

package tokenizers

/*
#cgo LDFLAGS: ${SRCDIR}/lib/libembedsidecar_tokenizers.a -lm
#cgo linux LDFLAGS: -ldl -lpthread
#include <stddef.h>
#include <stdint.h>
#include "library.h" // tools/build-tokenizers.sh makes it, with the library

// As in shim/src/lib.rs.
typedef struct {
	uint32_t *ids;
	size_t ids_len;
	size_t count;
	uint32_t max_id;
	uint32_t typed;
	uint8_t *error;
	size_t error_len;
} est_answer;

typedef struct est_handle est_handle;

est_handle *est_new(const uint8_t *json, size_t len, est_answer *answer);
void est_encode(const est_handle *handle, const uint8_t *text, size_t len, est_answer *answer);
void est_ends(const est_handle *handle, const uint8_t *text, size_t len, est_answer *answer);
void est_free_answer(est_answer *answer);
void est_free(est_handle *handle);
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// Linked reports whether this build has the crate.
const Linked = true

// A Tokenizer is safe for concurrent use.
type Tokenizer struct {
	handle        *C.est_handle
	before, after []int32
	maxID         int32
	typed         bool
}

// New makes a tokenizer of the content of a tokenizer.json. Truncation and padding in it are ignored.
func New(json []byte) (*Tokenizer, error) {
	var answer C.est_answer
	handle := C.est_new((*C.uint8_t)(unsafe.SliceData(json)), C.size_t(len(json)), &answer)
	defer C.est_free_answer(&answer)
	runtime.KeepAlive(json)
	if handle == nil {
		return nil, fmt.Errorf("read with the tokenizers crate: %w", problem(&answer))
	}
	t := &Tokenizer{handle: handle}
	runtime.SetFinalizer(t, func(t *Tokenizer) { C.est_free(t.handle) })
	around, err := ids(&answer)
	if err != nil || answer.max_id > math.MaxInt32 {
		return nil, fmt.Errorf("read with the tokenizers crate: ids are larger than %d", math.MaxInt32)
	}
	t.before, t.after, t.maxID = around[:answer.count], around[answer.count:], int32(answer.max_id)
	t.typed = answer.typed != 0
	return t, nil
}

// Around returns the special tokens before and after every text.
func (t *Tokenizer) Around() (before, after []int32) { return t.before, t.after }

// MaxID returns the largest id of the vocabulary.
func (t *Tokenizer) MaxID() int32 { return t.maxID }

// Typed reports whether tokens of a type other than 0 occur.
func (t *Tokenizer) Typed() bool { return t.typed }

// Encode returns the tokens of a text, all of them. Bytes that are not UTF-8 are dropped.
func (t *Tokenizer) Encode(text string) (Encoded, error) {
	text = strings.ToValidUTF8(text, "")
	var answer C.est_answer
	C.est_encode(t.handle, (*C.uint8_t)(unsafe.StringData(text)), C.size_t(len(text)), &answer)
	defer C.est_free_answer(&answer)
	runtime.KeepAlive(text)
	runtime.KeepAlive(t)
	if answer.error != nil {
		return Encoded{}, fmt.Errorf("tokenize: %w", problem(&answer))
	}
	found, err := ids(&answer)
	return Encoded{IDs: found, Content: int(answer.count)}, err
}

// Ends returns the byte offset after each of Encode's tokens, in a text in UTF-8, never decreasing. A token that ends
// inside a character counts as ending after it. Bytes after a token that are in no token, except white space, belong to
// it.
func (t *Tokenizer) Ends(text string) ([]int, error) {
	var answer C.est_answer
	C.est_ends(t.handle, (*C.uint8_t)(unsafe.StringData(text)), C.size_t(len(text)), &answer)
	defer C.est_free_answer(&answer)
	runtime.KeepAlive(text)
	runtime.KeepAlive(t)
	if answer.error != nil {
		return nil, fmt.Errorf("tokenize: %w", problem(&answer))
	}
	found, err := ids(&answer)
	ends := make([]int, len(found))
	for i, end := range found {
		ends[i] = int(end)
	}
	return ends, err
}

func problem(answer *C.est_answer) error {
	return errors.New(string(unsafe.Slice((*byte)(answer.error), int(answer.error_len))))
}

func ids(answer *C.est_answer) ([]int32, error) {
	if answer.ids == nil || answer.ids_len == 0 {
		return nil, nil
	}
	raw := unsafe.Slice((*uint32)(answer.ids), int(answer.ids_len))
	if slices.Max(raw) > math.MaxInt32 {
		return nil, errors.New("tokenize: an id is larger than an int32")
	}
	found := make([]int32, len(raw))
	for i, id := range raw {
		found[i] = int32(id)
	}
	return found, nil
}
