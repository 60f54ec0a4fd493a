package walmsg

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"unicode/utf8"
)

// Ask is the prefix of the nontransactional logical message with which a session asks for the vector of a text. Its
// content is a question.
const Ask = "embedsidecar.ask"

// LongestQuestion is the limit of a question's text in bytes.
const LongestQuestion = 32 << 10

// LongestTexts is the limit in bytes of a question with the texts to score and their lengths; MostTexts limits their
// number.
const (
	LongestTexts = 4<<20 + LongestQuestion
	MostTexts    = 1000
)

// The first byte of a question is its kind.
const (
	wantsVector = 1
	wantsScores = 2
)

// Offsets in the content of a question's message.
const (
	pipelineAt = 1 + sha256.Size
	untilAt    = pipelineAt + 8
	textAt     = untilAt + 8
)

// A Question is a text whose vector a session waits for, in embedsidecar.embed, search or ask.
type Question struct {
	ID       [sha256.Size]byte // of pipeline, role and text: the same question has the same
	Pipeline int32
	Role     uint32 // the login role
	Until    int64  // end of the session's wait: microseconds since 1970, by the server's clock
	Text     string
	Texts    []string // to score by how well they answer the text; nil: the vector is wanted
}

// Bytes returns the size of a question.
func (q *Question) Bytes() int {
	bytes := len(q.Text)
	for _, text := range q.Texts {
		bytes += len(text)
	}
	return bytes
}

// ErrNoQuestion means that a message was not made by our functions: any role can write a similar message.
var ErrNoQuestion = errors.New("not a question of this installation")

// QuestionKey returns the key that signs questions. It is derived from the installation's secret and differs from it,
// because roles that may ask get their own texts signed, and the secret is also used for the names of traces.
func QuestionKey(secret []byte) []byte { return keyOf(Ask, secret) }

// keyOf returns the key for messages with a prefix: a signature of one kind is not valid for another.
func keyOf(prefix string, secret []byte) []byte {
	sum := sha256.Sum256(append([]byte(prefix), secret...))
	return sum[:]
}

// ReadQuestion reads the content of a message, as embedsidecar.put in sql/functions/search.sql writes it: a byte for
// the kind, the HMAC of the rest, pipeline, role, time and text; for scores also the texts, each after its length. It
// returns ErrNoQuestion for anything else.
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

// readTexts reads the text of a question and those to score; nil: invalid.
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
