package walmsg

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// HintPrefix is the prefix of the transactional logical message by which embedsidecar.hint says how urgent the changes
// of its transaction are.
const HintPrefix = "embedsidecar.hint"

// A Hint is what a writer says of the changes of his transaction.
type Hint byte

// The hints. NoHint is none.
const (
	NoHint Hint = 0
	Urgent Hint = 'u'
	Low    Hint = 'l'
	Skip   Hint = 's' // the changes that come after it need no new vector
)

// Where the parts of a hint are in the content of its message.
const (
	xidAt    = 1 + sha256.Size
	wordAt   = xidAt + 8
	hintSize = wordAt + 1
)

// ErrNoHint means that a message was not made by our function, or in another transaction.
var ErrNoHint = errors.New("not a hint of this installation")

// HintKey returns the key that hints are signed with.
func HintKey(secret []byte) []byte { return keyOf(HintPrefix, secret) }

// ReadHint reads the content of a message, as embedsidecar.hint in sql/functions/hint.sql writes it: a version, the
// HMAC of what follows, the transaction, and the first letter of the word. The transaction is that of the message, so
// that one who has read somebody's hint cannot give it again. It returns ErrNoHint for anything else.
func ReadHint(key, content []byte, xid uint32) (Hint, error) {
	if len(content) != hintSize || content[0] != 1 {
		return NoHint, ErrNoHint
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(content[xidAt:])
	if !hmac.Equal(mac.Sum(nil), content[1:xidAt]) || binary.BigEndian.Uint32(content[wordAt-4:]) != xid {
		return NoHint, ErrNoHint
	}
	switch h := Hint(content[wordAt]); h {
	case Urgent, Low, Skip:
		return h, nil
	case NoHint:
	}
	return NoHint, ErrNoHint
}
