package walmsg

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// asked writes a question as the server does.
func asked(key []byte, pipeline int32, role uint32, until int64, text string) []byte {
	body := binary.BigEndian.AppendUint32(nil, uint32(pipeline))
	body = binary.BigEndian.AppendUint32(body, role)
	body = binary.BigEndian.AppendUint64(body, uint64(until))
	body = append(body, text...)
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return append(mac.Sum([]byte{1}), body...)
}

func TestReadQuestion_TakesNoneThatIsNotSigned(t *testing.T) {
	key := QuestionKey([]byte("secret"))
	good := asked(key, 7, 10, 99, "how?")
	q, err := ReadQuestion(key, good)
	if err != nil || q.Pipeline != 7 || q.Role != 10 || q.Until != 99 || q.Text != "how?" {
		t.Fatalf("%+v, %v", q, err)
	}
	if again, _ := ReadQuestion(key, asked(key, 7, 10, 100, "how?")); again.ID != q.ID {
		t.Error("the same question, asked later, is another one")
	}
	for what, other := range map[string][]byte{
		"another pipeline": asked(key, 8, 10, 99, "how?"), "another role": asked(key, 7, 11, 99, "how?"),
		"another text": asked(key, 7, 10, 99, "who?"),
	} {
		if o, err := ReadQuestion(key, other); err != nil || o.ID == q.ID {
			t.Errorf("%s: the same question, %v", what, err)
		}
	}
	bad := map[string][]byte{
		"nothing": nil, "cut off": good[:20], "another version": append([]byte{2}, good[1:]...),
		"by the secret itself":    asked([]byte("secret"), 7, 10, 99, "how?"),
		"by another installation": asked(QuestionKey([]byte("guess")), 7, 10, 99, "how?"),
		"no UTF-8":                asked(key, 7, 10, 99, "\xff"),
		"too long":                asked(key, 7, 10, 99, strings.Repeat("x", LongestQuestion+1)),
	}
	for at := range good {
		changed := bytes.Clone(good)
		changed[at] ^= 1
		bad["one bit"] = changed
		if _, err := ReadQuestion(key, changed); !errors.Is(err, ErrNoQuestion) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
	}
	for what, content := range bad {
		if _, err := ReadQuestion(key, content); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
