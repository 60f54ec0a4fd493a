package walmsg

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"unicode/utf8"
)

// Ask is the prefix of the logical message, in no transaction, by which a session asks for the vector of a text; its
// content is a question.
const Ask = "embedsidecar.ask"

// LongestQuestion is how many bytes the text of a question may have.
const LongestQuestion = 32 << 10

// LongestTexts is how many bytes a question may have with the texts that are to be scored, and their lengths, and
// MostTexts how many these may be.
const (
	LongestTexts = 4<<20 + LongestQuestion
	MostTexts    = 1000
)

// The first byte of a question says what is wanted.
const (
	wantsVector = 1
	wantsScores = 2
)

// Where the parts of a question are in the content of its message.
const (
	pipelineAt = 1 + sha256.Size
	untilAt    = pipelineAt + 8
	textAt     = untilAt + 8
)

// A Question is a text whose vector a session waits for that has called embedsidecar.embed, search or ask.
type Question struct {
	ID       [sha256.Size]byte // of pipeline, role and text: the same question has the same
	Pipeline int32
	Role     uint32 // that has logged in
	Until    int64  // when nobody waits for the answer any more: microseconds since 1970, by the server's clock
	Text     string
	Texts    []string // to be scored by how well they answer the text; nil: its vector is wanted
}

// Bytes is how much a question holds.
func (q *Question) Bytes() int {
	bytes := len(q.Text)
	for _, text := range q.Texts {
		bytes += len(text)
	}
	return bytes
}

// ErrNoQuestion means that a message was not made by our functions: anybody may write what looks like a question.
var ErrNoQuestion = errors.New("not a question of this installation")

// QuestionKey returns the key that questions are signed with. It is made of the installation's secret, and is not the
// secret itself: anyone who may ask has texts of his own signed, and traces are named with the secret.
func QuestionKey(secret []byte) []byte { return keyOf(Ask, secret) }

// keyOf returns the key for messages with a prefix: what is signed as one kind of message is none of another.
func keyOf(prefix string, secret []byte) []byte {
	sum := sha256.Sum256(append([]byte(prefix), secret...))
	return sum[:]
}

// ReadQuestion reads the content of a message, as embedsidecar.put in sql/functions/search.sql writes it: a
// byte that says what is wanted, the HMAC of what follows, pipeline, role, time and text; where scores are wanted, the
// texts too, each with its length before it. It returns ErrNoQuestion for anything else.
func ReadQuestion(key, content []byte) (Question, error) {
	switch {
	case len(content) < textAt:
		return Question{}, ErrNoQuestion
	case content[0] == wantsVector && len(content) <= textAt+LongestQuestion:
	case content[0] == wantsScores && len(content) <= textAt+LongestTexts:
	default:
		return Question{}, ErrNoQuestion
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(content[pipelineAt:])
	if !hmac.Equal(mac.Sum(nil), content[1:pipelineAt]) {
		return Question{}, ErrNoQuestion
	}
	texts := []string{string(content[textAt:])}
	if content[0] == wantsScores {
		texts = readTexts(content[textAt:])
	}
	if len(texts) == 0 || slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }) {
		return Question{}, ErrNoQuestion
	}
	q := Question{
		Pipeline: int32(binary.BigEndian.Uint32(content[pipelineAt:])), //nolint:gosec // an identity column, as it was signed
		Role:     binary.BigEndian.Uint32(content[pipelineAt+4:]),
		Until:    int64(binary.BigEndian.Uint64(content[untilAt:])), //nolint:gosec // a time, as it was signed
		Text:     texts[0],
	}
	if content[0] == wantsScores {
		q.Texts = texts[1:]
	}
	id := sha256.New()
	id.Write(content[pipelineAt:untilAt])
	id.Write(content[textAt:])
	id.Sum(q.ID[:0])
	return q, nil
}

// readTexts reads the text of a question and those that are to be scored; nil: it is something else.
func readTexts(content []byte) (texts []string) {
	const size = 4
	for len(content) > 0 {
		if len(content) < size {
			return nil
		}
		length := uint64(binary.BigEndian.Uint32(content))
		if content = content[size:]; length > uint64(len(content)) || len(texts) > MostTexts {
			return nil
		}
		texts = append(texts, string(content[:length]))
		content = content[length:]
	}
	if len(texts) < 2 || texts[0] == "" { //nolint:mnd // the text, and one to score
		return nil
	}
	return texts
}
