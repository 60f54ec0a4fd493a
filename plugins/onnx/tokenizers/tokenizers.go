// Package tokenizers turns text into token ids with the tokenizers crate, which is written in Rust: byte-level BPE,
// BPE, Unigram, and every other kind of tokenizer.json that the reference library reads. The crate is linked into the
// program when it is built with the tag "tokenizers" (make build does that where there is cargo). A build without it
// has the same functions, and New says which build is needed.
package tokenizers

import "errors"

// ErrNotBuilt is in the chain of New's error when this program was built without the crate.
var ErrNotBuilt = errors.New("this build of the plugin has no tokenizers crate, which BPE, Unigram and cased models need: " +
	"use a plugin that was built where there is cargo (Rust 1.80 or newer): make build, or tools/build-tokenizers.sh and go build -tags tokenizers")

// Encoded is what a text became.
type Encoded struct {
	IDs []int32 // without the special tokens that stand around every text
	// how many of them are no special tokens; the one for what is not known counts, it stands for something in the text
	Content int
}
