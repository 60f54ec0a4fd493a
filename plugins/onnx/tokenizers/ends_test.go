//go:build tokenizers && cgo

package tokenizers_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// Offsets in texts as they were written, whatever the normaliser made of them: characters of several bytes and of
// several tokens, characters that become one or several others, or none.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string]map[string][]int{
		"byte_bpe": { // bytes, and pairs of them; a token that ends inside a character counts as ending after it
			"":                        {},
			"e\u0301x":                {1, 3, 4}, // e, a part of the accent and its rest, x: the vocabulary joins two of them
			"\u4f60\u597d\U0001f642!": {3, 3, 3, 6, 6, 6, 10, 10, 10, 11},
			"a\u3000\u00a0 b":         {1, 4, 6, 8},
			"caf\u00e9 \u00fcber":     {2, 3, 5, 8, 8, 11}, // ca, f, \u00e9, the space with half of \u00fc, its other half, ber
			"  x  ":                   {1, 3, 5},
			"a\x00b":                  {1, 2, 3},
			"\u0130stanbul \u1e9e":    {2, 2, 6, 7, 9, 10, 13, 13},
			"\u1112\u1161\u11ab a":    {3, 3, 3, 6, 6, 6, 9, 9, 9, 11},
		},
		"regex_bpe": { // NFC: what is composed ends with its last part
			"e\u0301x":                {3, 4},
			"e\u0301":                 {3},
			"\u212bngstrom":           {3, 3, 5, 7, 10}, // three bytes that become two
			"\u1112\u1161\u11ab a":    {9, 9, 9, 11},    // three characters that become one
			"a\u0300\u0301 b":         {3, 3, 5, 7},
			"it's 12\u00e9":           {2, 4, 5, 6, 7, 9},
			"\u4f60\u597d\U0001f642!": {3, 3, 3, 6, 6, 6, 10, 10, 10, 11},
		},
		"unigram": { // a table of normalisations, words that begin with a mark
			"\ufb01sh a":       {3, 4, 5, 7}, // f and the i of one character, s
			"\uff21 \u2460":    {3, 7},
			"a\u3000\u00a0 b":  {1, 8}, // spaces become one
			"e\u0301x":         {3, 3, 4},
			"  x  ":            {3},
			"\u4f60\u597d !":   {3, 6, 8, 8}, // the mark, all that is unknown, the mark, !
			"a\u0300\u0301 b":  {1, 5, 7},
			"\u0130stan":       {2, 2, 4, 6},
			" \t\u3000":        {},
			"caf\u00e9 \u00fc": {1, 2, 3, 5, 8, 8},
		},
		"cased": { // words in pieces, control characters removed
			"B\u00e9 \u4e2d, B":   {1, 3, 7, 8, 10},
			"a\x00b":              {2, 3},
			"\u4f60\u597d!":       {3, 6, 7},
			"caf\u00e9 \u00fcber": {1, 2, 3, 5, 8, 9, 11},
		},
	} {
		made := load(t, name)
		for text, want := range texts {
			got, err := made.Ends(text)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s %q: %v, %v, want %v", name, text, got, err, want)
			}
		}
	}
}

// What cutting relies on, for every text, most of them hostile.
func TestEnds_AgreeWithTokens(t *testing.T) {
	t.Parallel()
	type line struct {
		Text string `json:"text"`
	}
	texts := onnxtest.Lines[line](t, "../wordpiece/testdata/tokens.jsonl.gz")
	for _, name := range []string{"byte_bpe", "regex_bpe", "unigram", "cased"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := load(t, name)
			for i, line := range texts {
				ends, err := made.Ends(line.Text)
				encoded, err2 := made.Encode(line.Text)
				if err != nil || err2 != nil || len(ends) != len(encoded.IDs) || !slices.IsSorted(ends) {
					t.Fatalf("text %d (%.60q): ends %v of tokens %v, %v, %v", i, line.Text, ends, encoded.IDs, err, err2)
				}
				for _, end := range ends {
					if end > len(line.Text) || end < len(line.Text) && !utf8.RuneStart(line.Text[end]) {
						t.Fatalf("text %d (%.60q): a token ends at byte %d of %d, or inside a character", i, line.Text, end,
							len(line.Text))
					}
				}
				if content := strings.TrimRightFunc(line.Text, unicode.IsSpace); len(ends) > 0 && ends[len(ends)-1] < len(content) {
					t.Fatalf("text %d (%.60q): the last token ends at byte %d of %d", i, line.Text, ends[len(ends)-1], len(content))
				}
				for n := i % 50; n < len(ends); n += 50 {
					end := ends[n]
					if end == len(line.Text) || line.Text[end] != ' ' || n+1 < len(ends) && ends[n+1] == end {
						continue
					}
					if head, err := made.Ends(line.Text[:end]); err != nil || !slices.Equal(head, ends[:n+1]) {
						t.Fatalf("text %d (%.60q) cut at byte %d: ends %v, %v, want %v", i, line.Text, end, head, err, ends[:n+1])
					}
				}
			}
		})
	}
}

// Without a normaliser the tokens of bytes are the text: where they end is the sum of their lengths.
func TestEnds_OfBytesAddUp(t *testing.T) {
	t.Parallel()
	var file struct {
		Model struct {
			Vocab map[string]int32 `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal([]byte(onnxtest.Unzipped(t, "testdata/byte_bpe.json.gz")), &file); err != nil {
		t.Fatal(err)
	}
	length := map[int32]int{} // each byte is written as one character
	for token, id := range file.Model.Vocab {
		length[id] = utf8.RuneCountInString(token)
	}
	made := load(t, "byte_bpe")
	for _, text := range []string{
		"plain words", " \u00e9\u00e9 \u4f60\u597d \U0001f642\U0001f642", "e\u0301\u0301 \u1112\u1161",
		strings.Repeat("\u0bb5\u0ba3\u0b95 ", 500), "\x00\x01\t\n\r",
	} {
		ends, err := made.Ends(text)
		encoded, err2 := made.Encode(text)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		at := 0
		for i, id := range encoded.IDs {
			at += length[id]
			want := at
			for want < len(text) && !utf8.RuneStart(text[want]) {
				want++
			}
			if ends[i] != want {
				t.Fatalf("%.40q: token %d ends at byte %d, want %d", text, i, ends[i], want)
			}
		}
	}
}
