package walmsg

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// HintPrefix is the prefix of the transactional logical message with which embedsidecar.hint sets the priority of its
// transaction's changes.
const HintPrefix = "embedsidecar.hint"

// A Hint says how to treat the changes of a transaction.
type Hint byte

// The hints. NoHint is none.
const (
	NoHint Hint = 0
	Urgent Hint = 'u'
	Low    Hint = 'l'
	Skip   Hint = 's' // the later changes need no new vector
)

// Offsets in the content of a hint's message.
const (
	xidAt    = 1 + sha256.Size
	wordAt   = xidAt + 8
	hintSize = wordAt + 1
)

// ErrNoHint means that a message was not made by our function, or was made in another transaction.
var ErrNoHint = errors.New("not a hint of this installation")

// HintKey returns the key that signs hints.
func HintKey(secret []byte) []byte { return keyOf(HintPrefix, secret) }

// ReadHint reads the content of a message, as embedsidecar.hint in sql/functions/hint.sql writes it: a version, the
// HMAC of the rest, the transaction, and the first letter of the word. The transaction must be that of the message, so
// that a copied hint is invalid. It returns ErrNoHint for anything else.
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
