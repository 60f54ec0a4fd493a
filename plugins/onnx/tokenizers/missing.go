//go:build !tokenizers || !cgo

package tokenizers

// Linked reports whether this build has the crate.
const Linked = false

// A Tokenizer cannot be made by this build.
type Tokenizer struct{}

// New returns ErrNotBuilt.
func New([]byte) (*Tokenizer, error) { return nil, ErrNotBuilt }

// Around returns nil.
func (t *Tokenizer) Around() (before, after []int32) { return nil, nil }

// MaxID returns 0.
func (t *Tokenizer) MaxID() int32 { return 0 }

// Typed is false.
func (t *Tokenizer) Typed() bool { return false }

// Encode returns ErrNotBuilt.
func (t *Tokenizer) Encode(string) (Encoded, error) { return Encoded{}, ErrNotBuilt }

// Ends returns ErrNotBuilt.
func (t *Tokenizer) Ends(string) ([]int, error) { return nil, ErrNotBuilt }
