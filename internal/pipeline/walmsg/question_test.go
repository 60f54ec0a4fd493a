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

// scored writes a question with texts to score as the server does.
func scored(key []byte, texts ...string) []byte {
	var list []byte
	for _, text := range texts {
		list = binary.BigEndian.AppendUint32(list, uint32(len(text)))
		list = append(list, text...)
	}
	content := asked(key, 7, 10, 99, string(list))
	content[0] = wantsScores
	return content
}

func TestReadQuestion_ReadsTextsToScore(t *testing.T) {
	key := QuestionKey([]byte("secret"))
	q, err := ReadQuestion(key, scored(key, "how?", "é", "", "so"))
	if err != nil || q.Text != "how?" || len(q.Texts) != 3 || q.Texts[0] != "é" || q.Texts[2] != "so" || q.Bytes() != 8 {
		t.Fatalf("%+v, %v", q, err)
	}
	if o, err := ReadQuestion(key, scored(key, "how?", "é", "s", "o")); err != nil || o.ID == q.ID {
		t.Errorf("other texts: the same question, %v", err)
	}
	long := asked(key, 7, 10, 99, "\x00\x00\x00\x04how?\xff\xff\xff\xffso")
	long[0] = wantsScores
	for what, content := range map[string][]byte{
		"no text": scored(key), "nothing to score": scored(key, "how?"), "no question": scored(key, "", "so"),
		"no UTF-8": scored(key, "how?", "\xff"), "a length beyond the end": long,
		"too many": scored(key, append([]string{"how?"}, make([]string, MostTexts+1)...)...),
		"too long": scored(key, "how?", strings.Repeat("x", LongestTexts)),
	} {
		if _, err := ReadQuestion(key, content); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !Ours(false, []byte(Ask), len(scored(key, "how?", strings.Repeat("x", 4<<20)))) {
		t.Error("a question with texts is not taken for ours")
	}
}
