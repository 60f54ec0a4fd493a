package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// canary begins and ends every text that is sent, so that a quote of a text can be told wherever it turns up.
const canary = "Quetzalcoatlus"

var words = strings.Fields(`the a of river and mountain green slow engine table window people letter morning invoice password
	account winter bread small old bright carries reads opens under over between second third city harbour ship yellow
	paper
	machine question answer doctor garden music silence number seven eleven never always because although`)

// sentence makes an ordinary text of so many words; the same seed makes the same.
func sentence(seed uint64, length int) string {
	r := rand.New(rand.NewPCG(seed, 0x5eed)) //nolint:gosec // texts are no secret
	b := []string{canary}
	for range length {
		b = append(b, words[r.IntN(len(words))])
	}
	return strings.Join(append(b, fmt.Sprint(seed), canary), " ")
}

// sentences are n different texts of usual lengths, mixed.
func sentences(seed uint64, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = sentence(seed*1_000_003+uint64(i), 3+int(seed+uint64(i)*7)%40)
	}
	return list
}

// usualTexts are what answers are compared on: of different lengths, none alike.
var usualTexts = sentences(1, 12)

// long makes a text of exactly so many bytes out of words.
func long(bytes int) string {
	piece := strings.Join(words, " ") + " "
	b := strings.Repeat(piece, bytes/len(piece)+1)
	b = canary + " " + b
	return b[:bytes-len(canary)-1] + " " + canary
}

// strange are valid UTF-8 that programs stumble over. Each stands between the canaries.
var strange = []struct{ what, text string }{
	{"NUL", "before\x00after"},
	{"control characters", "\x01\x02\x1b[31mred\x7f"},
	{"a byte order mark", "\ufeffmarked"},
	{"combining marks", "e\u0301 a\u0308\u0323 Z\u0351\u036b\u0343\u036a"},
	{"right to left", "שלום עליכם والسلام \u202etfel"},
	{"no spaces", "東京都は日本の首都である。ภาษาไทยไม่มีช่องว่าง"},
	{"emoji joined by zero width joiners", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽"},
	{"outside the basic plane", "𝕱𝖗𝖆𝖐𝖙𝖚𝖗 𐍈 🜚 \U0010fffd"},
	{"noncharacters and private use", "\uffff \ufffe \ue000 \ufffd"},
	{"line and paragraph separators", "a\u2028b\u2029c\r\nd\u0085e\u000bf"},
	{"zero width and soft hyphen", "a\u200bb\u200c\u200dc\u2060d\u00ade"},
	{"case that changes length", "İstanbul ẞ ŉ ǰ ﬃ"},
	{"one long word", strings.Repeat("a", 5000)},
	{"one mark 500 times", "o" + strings.Repeat("\u0300", 500)},
	{"markup and escapes", `<script>&amp;</script> \u0000 %s %n ${HOME} '; --`},
	{"special tokens as text", "[CLS] [SEP] [PAD] [UNK] [MASK] <s> </s> <pad> <|endoftext|> <unk>"},
}

// strangeTexts are those, between the canaries.
var strangeTexts = func() (texts []string) {
	for _, s := range strange {
		texts = append(texts, canary+" "+s.text+" "+canary)
	}
	return texts
}()

// suspect finds the one strange text that fails a call.
func suspect(whole error, call func(texts []string) error) error {
	for i, text := range strangeTexts {
		if err := call([]string{text}); err != nil {
			return fmt.Errorf("a text with %s: %w", strange[i].what, err)
		}
	}
	return whole
}

// nothing are texts without anything to embed; models differ in which of them they call empty.
var nothing = []string{"", " ", "\n\t \r\n", "\u00a0\u2003", "\u200b"}
