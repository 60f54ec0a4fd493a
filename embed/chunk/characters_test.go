package chunk

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestCut_CutsAsLangChainDoes compares the chunks of 1,000 texts with those of LangChain (testdata/langchain.py).
func TestCut_CutsAsLangChainDoes(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/langchain.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text, Strategy string
		Size, Overlap  int
		Separators     []string
		Chunks         []string
	}
	if err := json.NewDecoder(unzipped).Decode(&cases); err != nil || len(cases) != 1000 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for i, c := range cases {
		chunks := Cut(Settings{
			Strategy: Strategy(c.Strategy), Characters: c.Size, Overlap: c.Overlap, Separators: c.Separators,
		}, Text{Text: c.Text}, Text{})
		got := []string{}
		for _, k := range chunks {
			got = append(got, k.Of(c.Text))
		}
		// White space is not embedded.
		want := slices.DeleteFunc(c.Chunks, func(s string) bool { return strings.TrimFunc(s, blank) == "" })
		if !slices.Equal(got, want) {
			t.Fatalf("case %d: %s, %d characters, overlap %d, separators %q of\n%q\ngives %q\nwant  %q", i, c.Strategy, c.Size,
				c.Overlap, c.Separators, c.Text, got, want)
		}
	}
}

func TestCut_ByCharactersPutsTheContextBeforeEachChunk(t *testing.T) {
	t.Parallel()
	chunks := Cut(Settings{Strategy: Recursive, Characters: 8, Separators: []string{" "}, Between: ": "},
		Text{Text: "some words more"}, Text{Text: "A  title"})
	got := []string{}
	for _, c := range chunks {
		got = append(got, c.Embedded("some words more"))
	}
	if want := []string{"A  title: some", "A  title: words", "A  title: more"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCut_ByCharactersKeepsToTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab \n.é日"))).Draw(t, "text")
		size := rapid.IntRange(1, 12).Draw(t, "size")
		s := Settings{
			Strategy:   rapid.SampledFrom([]Strategy{Character, Recursive}).Draw(t, "strategy"),
			Characters: size, Overlap: rapid.IntRange(0, size).Draw(t, "overlap"),
			Separators: rapid.SliceOfN(rapid.SampledFrom([]string{"\n\n", "\n", ".", " ", ""}), 1, 4).Draw(t, "separators"),
		}
		last := 0
		for _, c := range Cut(s, Text{Text: text}, Text{}) {
			if c.Start < last || c.End <= c.Start || c.End > len(text) || strings.TrimSpace(c.Of(text)) == "" {
				t.Fatalf("chunk %+v of %q after %d", c, text, last)
			}
			last = c.Start
		}
	})
}
