package wordpiece_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

const cls, sep, unk = 101, 102, 100

func load(t testing.TB) *wordpiece.Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(onnxtest.Model(t), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := wordpiece.New(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// reference is 4,000 texts, mostly hostile, with the ids of the reference library.
func reference(t testing.TB) []line {
	t.Helper()
	return onnxtest.Lines[line](t, "testdata/tokens.jsonl.gz")
}

type line struct {
	Text string  `json:"text"`
	IDs  []int32 `json:"ids"`
}

func TestEncode_EqualsReference(t *testing.T) {
	tok, lines := load(t), reference(t)
	if len(lines) != 4000 {
		t.Fatalf("got %d reference texts, want 4000", len(lines))
	}
	wrong := 0
	for i, want := range lines {
		got, info := tok.Encode(nil, want.Text, 0)
		if !slices.Equal(got, want.IDs) {
			if wrong++; wrong <= 5 {
				t.Errorf("text %d (%.60q):\n got %v\nwant %v", i, want.Text, got, want.IDs)
			}
		}
		if info.Truncated {
			t.Errorf("text %d: truncated without a limit", i)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d texts differ", wrong, len(lines))
	}
}

// Cutting while reading must equal cutting afterwards.
func TestEncode_LimitCutsTheEnd(t *testing.T) {
	tok := load(t)
	for i, line := range reference(t) {
		for _, limit := range []int{3, 8, 128, 256, len(line.IDs) - 1, len(line.IDs), len(line.IDs) + 1} {
			if limit < 3 {
				continue
			}
			want, cut := line.IDs, len(line.IDs) > limit
			if cut {
				want = append(slices.Clone(line.IDs[:limit-1]), sep)
			}
			got, info := tok.Encode(nil, line.Text, limit)
			if !slices.Equal(got, want) || info.Truncated != cut {
				t.Fatalf("text %d, limit %d: got %v, truncated %t, want %v, %t", i, limit, got, info.Truncated, want, cut)
			}
		}
	}
}

func TestEncode_Content(t *testing.T) {
	tok := load(t)
	for _, test := range []struct {
		text string
		want int
	}{
		{"", 0}, {" \t\n\u00a0\u3000", 0}, {"\x00\x01\u200b\ufeff\u0301", 0}, {"\xff\xfe", 0}, // nothing that counts
		{"[CLS][SEP]", 0}, {" [PAD] [UNK] ", 0}, // special tokens only
		{"a", 1}, {"[CLS]a", 1}, {"...", 3}, {"embedding", 3}, {"\u4b98", 1}, // the last one is unknown, but something
	} {
		if _, info := tok.Encode(nil, test.text, 0); info.Content != test.want {
			t.Errorf("Encode(%q): content %d, want %d", test.text, info.Content, test.want)
		}
	}
}

func TestEncode_AppendsAndCountsTheLimitFromThere(t *testing.T) {
	tok := load(t)
	got, _ := tok.Encode([]int32{7, 7, 7}, "one two three four", 4)
	if want := []int32{7, 7, 7, cls, 2028, 2048, sep}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A word of the model's maximum length is looked up; a longer one is unknown.
func TestEncode_LongWords(t *testing.T) {
	tok := load(t)
	if got, _ := tok.Encode(nil, strings.Repeat("a", 100), 0); slices.Contains(got, unk) {
		t.Errorf("100 letters: got %v, want known pieces", got)
	}
	for _, letters := range []int{101, 5_000_000} {
		got, info := tok.Encode(nil, strings.Repeat("a", letters), 256)
		if want := []int32{cls, unk, sep}; !slices.Equal(got, want) || info.Truncated {
			t.Errorf("%d letters: got %v, truncated %t, want %v", letters, got, info.Truncated, want)
		}
	}
}

// For any text, a call keeps only the tokens it returns.
func TestEncode_MemoryDoesNotGrowWithText(t *testing.T) {
	tok := load(t)
	dst := make([]int32, 0, 512)
	for name, text := range map[string]string{
		"words":    strings.Repeat("one two ", 1<<20),
		"one word": strings.Repeat("x", 8<<20),
		"spaces":   strings.Repeat(" ", 8<<20),
		"specials": strings.Repeat("[SEP]", 1<<20),
		"brackets": strings.Repeat("[", 8<<20),
		"marks":    strings.Repeat("\u0301", 4<<20),
		"hangul":   strings.Repeat("\uac01", 2<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ids, _ := tok.Encode(dst, text, 256)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
			t.Errorf("%s: a text of %d bytes cost %d bytes", name, len(text), got)
		}
		if len(ids) > 256 {
			t.Errorf("%s: %d tokens, want at most 256", name, len(ids))
		}
	}
}

func FuzzEncode(f *testing.F) {
	tok := load(f)
	for i, line := range reference(f) {
		if i%40 == 0 {
			f.Add(line.Text, 16)
		}
	}
	f.Add("\xc0\x80[\xed\xa0\x80SEP]", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		all, info := tok.Encode(nil, text, 0)
		if len(all) < 2 || all[0] != cls || all[len(all)-1] != sep {
			t.Fatalf("no special tokens around: %v", all)
		}
		if info.Content > len(all)-2 {
			t.Fatalf("content %d of %d tokens", info.Content, len(all))
		}
		// A character has at most three tokens (Hangul), so the text bounds the answer.
		if most := 2 + 3*utf8.RuneCountInString(text); len(all) > most {
			t.Fatalf("%d tokens of a text that allows %d", len(all), most)
		}
		for _, id := range all {
			if id < 0 || id > tok.MaxID() {
				t.Fatalf("id %d is not in the vocabulary", id)
			}
		}
		if limit < 3 {
			return
		}
		cut, info := tok.Encode(nil, text, limit)
		if len(cut) > limit || info.Truncated != (len(all) > limit) {
			t.Fatalf("limit %d: %d tokens, truncated %t, of %d", limit, len(cut), info.Truncated, len(all))
		}
		if !slices.Equal(cut[:len(cut)-1], all[:len(cut)-1]) {
			t.Fatalf("limit %d changes the tokens before the cut", limit)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok, lines := load(b), reference(b)
	var dst []int32
	tokens, bytes := 0, 0
	for b.Loop() {
		for _, line := range lines {
			dst, _ = tok.Encode(dst[:0], line.Text, 256)
			tokens += len(dst)
			bytes += len(line.Text)
		}
	}
	b.SetBytes(int64(bytes / b.N))
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

func ExampleTokenizer_Encode() {
	tok, err := wordpiece.New([]byte(`{
		"added_tokens": [],
		"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
		"pre_tokenizer": {"type": "BertPreTokenizer"},
		"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]},
		"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100,
			"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "row": 3, "##s": 4, "!": 5}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, info := tok.Encode(nil, "Rows, row!", 0)
	fmt.Println(ids, info.Content, info.Truncated)
	// Output: [1 3 4 0 3 5 2] 5 false
}

// Where tokens end is what cutting relies on: there are as many ends as tokens, and a text cut after a whole word has
// the tokens it had before.
func TestEnds_AgreeWithTokens(t *testing.T) {
	tok := load(t)
	for i, line := range reference(t) {
		ends := tok.Ends(line.Text)
		if got, want := len(ends), len(line.IDs)-tok.Around(); got != want {
			t.Fatalf("text %d (%.60q): %d ends for %d tokens", i, line.Text, got, want)
		}
		if !slices.IsSorted(ends) || len(ends) > 0 && (ends[0] < 1 || ends[len(ends)-1] > len(line.Text)) {
			t.Fatalf("text %d (%.60q): ends %v, want them to go up to %d", i, line.Text, ends, len(line.Text))
		}
		for n := i % 50; n < len(ends); n += 50 {
			end := ends[n]
			if end == len(line.Text) || line.Text[end] != ' ' || n+1 < len(ends) && ends[n+1] == end {
				continue
			}
			head, tail := tok.Ends(line.Text[:end]), tok.Ends(line.Text[end:])
			if len(head) != n+1 || len(tail) != len(ends)-n-1 {
				t.Fatalf("text %d (%.60q) cut at byte %d: %d and %d tokens, want %d and %d", i, line.Text, end, len(head),
					len(tail), n+1, len(ends)-n-1)
			}
		}
	}
}

func TestEnds_PointIntoTheTextAsItWasWritten(t *testing.T) {
	tok := load(t)
	long := strings.Repeat("x", 300)
	for text, want := range map[string][]int{
		"":                 {},
		"  \n ":            {},
		"Hello, World!":    {5, 6, 12, 13},
		"\u00c9t\u00e9 2":  {3, 5, 7}, // et, ##e, 2: accents are dropped, their bytes counted
		"a\u0301b c":       {4, 6},
		"\u65e5\u672c":     {3, 6}, // each a word of its own
		"\uc11c":           {3, 3}, // taken apart, ends after the character
		"a " + long + " b": {1, 302, 304},
		"tokenization":     {5, 12}, // token, ##ization
	} {
		if got := tok.Ends(text); !slices.Equal(got, want) {
			t.Errorf("Ends(%.20q) = %v, want %v", text, got, want)
		}
	}
}
