// Package tokenizers turns text into token ids with the Rust crate tokenizers: byte-level BPE, BPE, Unigram, and every
// other kind of tokenizer.json that the reference library supports. The crate is linked if the program is built with
// the tag "tokenizers" (make build sets it if cargo is installed). Without the tag the functions exist, and New returns
// an error.
package tokenizers

import "errors"

// ErrNotBuilt is wrapped by New's error if this program was built without the crate.
var ErrNotBuilt = errors.New("this build of the plugin has no tokenizers crate, which BPE, Unigram and cased models need: " +
	"use a plugin that was built where there is cargo (Rust 1.80 or newer): make build, or tools/build-tokenizers.sh and go build -tags tokenizers")

// Encoded is the tokens of a text.
type Encoded struct {
	IDs []int32 // without the special tokens around every text
	// how many of them are not special; the unknown token counts, as it stands for text
	Content int
}
