package unigram_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/unigram"
)

// The reference data is that of the tokenizers crate's tests.
const reference = "../tokenizers/testdata/unigram"

func load(t *testing.T, replace ...string) (*unigram.Tokenizer, error) {
	t.Helper()
	return unigram.New([]byte(strings.NewReplacer(replace...).Replace(onnxtest.Unzipped(t, reference+".json.gz"))))
}

// The ids equal those of the reference library for every text; most are hostile.
func TestEncode_AsTheReference(t *testing.T) {
	t.Parallel()
	made, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	onnxtest.SameTokens(t, reference+".sums.gz", func(text string) []int32 {
		ids, _, _ := made.Encode([]int32{0}, text, 0)
		if ends := made.Ends(strings.ToValidUTF8(text, "")); len(ends) != len(ids)-1 || !slices.IsSorted(ends) {
			t.Errorf("%.200q: %d ends of %d tokens, or not in order", text, len(ends), len(ids)-1)
		}
		return append(ids, 2)
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()
	made, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int{
		"\ufb01sh a":       {3, 4, 5, 7}, // f and the i of one character, s
		"\uff21 \u2460":    {3, 7},
		"a\u3000\u00a0 b":  {1, 8}, // spaces become one
		"e\u0301x":         {3, 3, 4},
		"  x  ":            {3},
		"\u4f60\u597d !":   {3, 6, 8, 8}, // the mark, all that is unknown, the mark, !
		"a\u0300\u0301 b":  {1, 5, 7},
		" \t\u3000":        {},
		"caf\u00e9 \u00fc": {1, 2, 3, 5, 8, 8},
	} {
		if got := made.Ends(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestEncode_CutsAndCounts(t *testing.T) {
	t.Parallel()
	made, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	all, content, cut := made.Encode(nil, "a few words <s> and more", 0)
	if cut || content != len(all)-1 || !slices.Contains(all, 0) {
		t.Errorf("got %v, %d, %v", all, content, cut)
	}
	if some, _, cut := made.Encode(nil, "a few words <s> and more", 3); !cut || !slices.Equal(some, all[:3]) {
		t.Errorf("got %v, %v, want the first of %v", some, cut, all)
	}
	if ids, content, _ := made.Encode(nil, "<s> \xff", 0); content != 0 || !slices.Equal(ids, []int32{0}) {
		t.Errorf("got %v, %d", ids, content)
	}
}

// Spaces beside a special token belong to it if its flags say so, and its text is not part of neighbouring words.
func TestEncode_SpecialTokensTakeSpaces(t *testing.T) {
	t.Parallel()
	const left = `"content":"</s>","single_word":false,"lstrip":`
	plain, err1 := load(t, `{"type":"WhitespaceSplit"},`, "")
	takes, err2 := load(t, `{"type":"WhitespaceSplit"},`, "", left+"false", left+"true")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	long, _, _ := plain.Encode(nil, "a  </s>b", 0)
	short, _, _ := takes.Encode(nil, "a  </s>b", 0)
	want, _, _ := plain.Encode(nil, "a</s>b", 0)
	if slices.Equal(long, want) || !slices.Equal(short, want) {
		t.Errorf("got %v, and with lstrip %v, want %v", long, short, want)
	}
}

func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ old, by, want string }{
		{`"Unigram"`, `"BPE"`, `model type "BPE"`},
		{`"unk_id":3`, `"unk_id":5000`, "unk_id"},
		{`"byte_fallback":false`, `"byte_fallback":true`, "byte_fallback"},
		{`"Precompiled"`, `"Nmt"`, `normalizer: type "Nmt"`},
		{`" {2,}"`, `"x+"`, "this pattern"},
		{`"WhitespaceSplit"`, `"Digits"`, `pre_tokenizer: type "Digits"`},
		{`"precompiled_charsmap":"AAQA`, `"precompiled_charsmap":"////`, "precompiled_charsmap: it is not whole"},
		{`"normalized":false`, `"normalized":true`, "normalized"},
		{"{", "[", "parse"},
	} {
		if _, err := load(t, test.old, test.by); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.by, err, test.want)
		}
	}
}
