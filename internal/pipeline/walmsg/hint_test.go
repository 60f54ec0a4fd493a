package walmsg

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"
)

// hinted writes a hint as the server does.
func hinted(key []byte, xid uint64, word byte) []byte {
	body := append(binary.BigEndian.AppendUint64(nil, xid), word)
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return append(mac.Sum([]byte{1}), body...)
}

func TestReadHint_TakesNoneThatIsNotSignedForItsTransaction(t *testing.T) {
	key := HintKey([]byte("secret"))
	for _, word := range []Hint{Urgent, Low, Skip} {
		content := hinted(key, 5<<32|7, byte(word))
		if h, err := ReadHint(key, content, 7); err != nil || h != word {
			t.Errorf("%c: %c, %v", word, h, err)
		}
		if !Ours(true, []byte(HintPrefix), len(content)) || Ours(false, []byte(HintPrefix), len(content)) {
			t.Errorf("%c: it is not ours, or would be outside of a transaction", word)
		}
	}
	good := hinted(key, 7, byte(Skip))
	bad := map[string][]byte{
		"nothing": nil, "cut off": good[:20], "longer": append(bytes.Clone(good), 0),
		"another version": append([]byte{2}, good[1:]...), "another word": hinted(key, 7, 'x'), "no word": hinted(key, 7, 0),
		"another transaction":  hinted(key, 8, byte(Skip)),
		"the key of questions": hinted(QuestionKey([]byte("secret")), 7, 's'),
		"another installation": hinted(HintKey([]byte("guess")), 7, 's'),
	}
	for what, content := range bad {
		if h, err := ReadHint(key, content, 7); !errors.Is(err, ErrNoHint) || h != NoHint {
			t.Errorf("%s: %c, %v", what, h, err)
		}
	}
	for at := range good {
		changed := bytes.Clone(good)
		changed[at] ^= 1
		if _, err := ReadHint(key, changed, 7); !errors.Is(err, ErrNoHint) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}
