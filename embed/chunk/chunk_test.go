package chunk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
)

// words is a tokenizer whose tokens are words.
func words(text string) []int {
	var ends []int
	inside := false
	for i, r := range text {
		if space := unicode.IsSpace(r); space && inside {
			ends = append(ends, i)
		}
		inside = !unicode.IsSpace(r)
	}
	if inside {
		ends = append(ends, len(text))
	}
	return ends
}

func cut(s chunk.Settings, text, title string) []chunk.Chunk {
	return chunk.Cut(s, chunk.Text{Text: text, Ends: words(text)}, chunk.Text{Text: title, Ends: words(title)})
}

// embedded returns what is embedded for each chunk.
func embedded(s chunk.Settings, text, title string) []string {
	var list []string
	for _, c := range cut(s, text, title) {
		list = append(list, c.Embedded(text))
	}
	return list
}

// prose makes n sentences that are all different.
func prose(r *rand.Rand, n int) string {
	vocabulary := strings.Fields("river stone copper lantern harbour engine garden winter silver paper window bridge forest table index page lock queue worker vector")
	var list []string
	for range n {
		var sentence []string
		for range 6 + r.IntN(10) {
			sentence = append(sentence, vocabulary[r.IntN(len(vocabulary))])
		}
		first := sentence[0]
		sentence[0] = strings.ToUpper(first[:1]) + first[1:]
		list = append(list, strings.Join(sentence, " ")+".")
	}
	return strings.Join(list, " ")
}

// check checks what must hold for all chunks of all texts.
func check(t *testing.T, s chunk.Settings, text, title string) []chunk.Chunk {
	t.Helper()
	chunks := cut(s, text, title)
	covered := 0
	for i, c := range chunks {
		if c.Start < 0 || c.End > len(text) || c.Start >= c.End {
			t.Fatalf("chunk %d is bytes %d to %d of %d", i, c.Start, c.End, len(text))
		}
		if c.Start > 0 && utf8.ValidString(text) && !utf8.RuneStart(text[c.Start]) || c.End < len(text) &&
			!utf8.RuneStart(text[c.End]) {
			t.Fatalf("chunk %d begins or ends inside a character: %d to %d", i, c.Start, c.End)
		}
		if c.Start > covered && strings.TrimSpace(text[covered:c.Start]) != "" {
			t.Fatalf("%q is in no chunk", text[covered:c.Start])
		}
		if c.End <= covered {
			t.Fatalf("chunk %d ends at %d, the one before it at %d", i, c.End, covered)
		}
		if strings.TrimSpace(text[max(covered, c.Start):c.End]) == "" {
			t.Fatalf("chunk %d has nothing new: %q", i, text[c.Start:c.End])
		}
		if c.Start < covered {
			if n := len(words(text[c.Start:covered])); n > s.Overlap {
				t.Fatalf("chunk %d repeats %d tokens, more than %d", i, n, s.Overlap)
			}
		}
		if n := len(words(c.Embedded(text))); n > s.Tokens && s.Strategy != chunk.None {
			t.Fatalf("chunk %d has %d tokens, more than %d: %q", i, n, s.Tokens, c.Embedded(text))
		}
		if strings.ContainsAny(c.Context, "\n\r\t") {
			t.Fatalf("context %q is not one line", c.Context)
		}
		covered = c.End
	}
	if strings.TrimSpace(text[covered:]) != "" {
		t.Fatalf("%q is in no chunk", text[covered:])
	}
	if again := cut(s, text, title); !slices.Equal(chunks, again) {
		t.Fatalf("cut twice: %v and %v", chunks, again)
	}
	return chunks
}

var strategies = []chunk.Strategy{chunk.None, chunk.Tokens, chunk.Sentences, chunk.Markdown}

func FuzzCut(f *testing.F) {
	f.Add("# A\n\nSome text. More text.\n\n```go\nfunc main() {}\n\nx\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n  - three\n", "Title", 20, 5)
	f.Add("Setext\n===\n\n> quote\n> more\n\n    code\n\n<div>\nhtml\n</div>\n", "", 16, 0)
	f.Add("데이터베이스의中國語 e\u0301 👩‍👩‍👧‍👦 \r\n\r\n\u2028\u00a0x", "数据库 の", 16, 8)
	f.Add(strings.Repeat("word ", 500), "", 16, 15)
	f.Add(strings.Repeat("x", 5000), "a", 16, 4)
	f.Add(strings.Repeat("> ", 300)+"deep", "", 17, 3)
	f.Add("# "+strings.Repeat("long heading ", 40)+"\n## b\n### c\ntext\n# d", "", 32, 4)
	f.Add("```\nnever closed\n\n"+strings.Repeat("line of code\n", 60), "t", 24, 6)
	f.Fuzz(func(t *testing.T, text, title string, tokens, overlap int) {
		text, title = strings.ToValidUTF8(text, "\uFFFD"), strings.ToValidUTF8(title, "\uFFFD")
		s := chunk.Settings{Tokens: 16 + abs(tokens)%500}
		s.Overlap = abs(overlap) % (s.Tokens/2 + 1)
		for _, s.Strategy = range strategies {
			check(t, s, text, title)
			for _, c := range chunk.Cut(s, chunk.Text{Text: text, Ends: chunk.Estimate(text)},
				chunk.Text{Text: title, Ends: chunk.Estimate(title)}) {
				if n := len(chunk.Estimate(c.Embedded(text))); n > s.Tokens+2 && s.Strategy != chunk.None {
					t.Fatalf("a chunk of about %d tokens, more than %d", n, s.Tokens)
				}
			}
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

func TestCut_EditOfOneParagraphChangesItsChunk(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies[1:] {
		worst, total := 0, 0
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := chunk.Settings{Strategy: strategy, Tokens: 128, Overlap: 16}
			var paragraphs []string
			for range 40 {
				paragraphs = append(paragraphs, prose(r, 4+r.IntN(5)))
			}
			before := embedded(s, strings.Join(paragraphs, "\n\n"), "A title")
			for range 10 {
				edited := slices.Clone(paragraphs)
				at := r.IntN(len(edited))
				edited[at] = prose(r, 1) + " " + edited[at]
				n := fresh(before, embedded(s, strings.Join(edited, "\n\n"), "A title"))
				worst, total = max(worst, n), total+n
			}
		}
		t.Logf("%s: an edit changes %.2f chunks on average, %d at worst", strategy, float64(total)/200, worst)
		if most := map[chunk.Strategy]int{chunk.Tokens: 8, chunk.Sentences: 2, chunk.Markdown: 2}[strategy]; worst > most {
			t.Errorf("%s: an edit changed %d chunks, want at most %d", strategy, worst, most)
		}
	}
}

func TestCut_MovedParagraphChangesNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range []chunk.Strategy{chunk.Sentences, chunk.Markdown} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 2))
			s := chunk.Settings{Strategy: strategy, Tokens: 128, Overlap: 16}
			var paragraphs []string
			for range 40 {
				paragraphs = append(paragraphs, prose(r, 4+r.IntN(20))) // some must be cut
			}
			before := embedded(s, strings.Join(paragraphs, "\n\n"), "")
			from, to := r.IntN(40), r.IntN(40)
			moved := slices.Insert(slices.Delete(slices.Clone(paragraphs), from, from+1), min(to, 39), paragraphs[from])
			if n := fresh(before, embedded(s, strings.Join(moved, "\n\n"), "")); n != 0 {
				t.Errorf("%s: moving paragraph %d to %d changed %d chunks, want 0", strategy, from, to, n)
			}
		}
	}
}

// fresh counts the texts in after that are not in before.
func fresh(before, after []string) int {
	known := map[string]bool{}
	for _, text := range before {
		known[text] = true
	}
	n := 0
	for _, text := range after {
		if !known[text] {
			n++
			known[text] = true
		}
	}
	return n
}

func TestCut_FillsChunks(t *testing.T) {
	t.Parallel()
	for _, strategy := range []chunk.Strategy{chunk.Tokens, chunk.Sentences} {
		r := rand.New(rand.NewPCG(3, 3))
		text := prose(r, 2000) // one paragraph
		s := chunk.Settings{Strategy: strategy, Tokens: 256}
		n := len(check(t, s, text, ""))
		fill := float64(len(words(text))) / float64(n*s.Tokens)
		t.Logf("%s: %d chunks, %.0f %% full", strategy, n, 100*fill)
		if fill < 0.6 {
			t.Errorf("%s: chunks are %.0f %% full, want 60", strategy, 100*fill)
		}
	}
}

func TestCut_Markdown(t *testing.T) {
	t.Parallel()
	code := "```go\n" + strings.Repeat("\tx := f(a, b)\n\n", 8) + "```"
	text := "# Guide\n\nIntro words here to be read.\n\n## Install\n\n" + code + "\n\nAfter the code.\n\n### Linux\n\n" +
		"# not inside\n\n" + "```\n# no heading\n```\n\n" + "Usage\n-----\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
	s := chunk.Settings{Strategy: chunk.Markdown, Tokens: 64}
	var got []string
	for _, c := range check(t, s, text, "Manual") {
		got = append(got, fmt.Sprintf("[%s] %s", c.Context, text[c.Start:c.End]))
	}
	want := []string{
		"[Manual] # Guide\n\nIntro words here to be read.",
		"[Manual > Guide] ## Install\n\n" + code + "\n\nAfter the code.",
		"[Manual > Guide > Install] ### Linux\n\n# not inside\n\n```\n# no heading\n```",
		"[Manual > not inside] Usage\n-----\n\n| a | b |\n|---|---|\n| 1 | 2 |",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n---\n"), strings.Join(want, "\n---\n"))
	}
}

// TestCut_AHeadingThatIsTheTitleIsNotRepeated, as an article's first heading often is.
func TestCut_AHeadingThatIsTheTitleIsNotRepeated(t *testing.T) {
	t.Parallel()
	text := "# Returns\n\n" + strings.Repeat("Words about it that fill a chunk. ", 9) + "\n\n## Refunds\n\n" +
		strings.Repeat("Money comes back after a week. ", 9)
	var got []string
	for _, c := range check(t, chunk.Settings{Strategy: chunk.Markdown, Tokens: 32}, text, "returns") {
		if !slices.Contains(got, c.Context) {
			got = append(got, c.Context)
		}
	}
	if want := []string{"returns", "returns > Refunds"}; !slices.Equal(got, want) {
		t.Errorf("contexts %q, want %q", got, want)
	}
}

func TestCut_KeepsCodeWholeUnlessItIsTooLong(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	fits := "```\n" + strings.Repeat("one two three\n", 20) + "```"
	long := "```\n" + strings.Repeat("one two three\n", 100) + "```"
	text := prose(r, 6) + "\n\n" + fits + "\n\n" + prose(r, 30) + "\n\n" + long + "\n\n" + prose(r, 3)
	s := chunk.Settings{Strategy: chunk.Markdown, Tokens: 64, Overlap: 8}
	whole, pieces := 0, 0
	for _, c := range check(t, s, text, "") {
		piece := text[c.Start:c.End]
		if strings.Contains(piece, fits) {
			whole++
		}
		if strings.Contains(piece, "one two three") && !strings.Contains(piece, fits) {
			pieces++
			for line := range strings.Lines(piece) {
				if line = strings.TrimSpace(line); line != "one two three" && !strings.HasPrefix(line, "```") {
					t.Errorf("a line of code was cut: %q", line)
				}
			}
		}
	}
	if whole != 1 || pieces < 5 {
		t.Errorf("the short block is whole in %d chunks, want 1; the long one is in %d, want 5 or more", whole, pieces)
	}
}

func TestCut_RepeatsTheEndOfWhatWasCut(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 6))
	long, short := prose(r, 60), prose(r, 4)
	text := long + "\n\n" + short
	s := chunk.Settings{Strategy: chunk.Sentences, Tokens: 64, Overlap: 16}
	chunks := check(t, s, text, "")
	for i := 1; i < len(chunks); i++ {
		repeats := chunks[i].Start < chunks[i-1].End
		if inside := chunks[i].Start < len(long); inside && !repeats && chunks[i].End > chunks[i-1].End+1 {
			t.Errorf("chunk %d repeats nothing of the one before it", i)
		} else if !inside && repeats {
			t.Errorf("chunk %d repeats something of another paragraph", i)
		}
	}
}

func TestCut_Nothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		for _, text := range []string{"", " ", "\n\n\t\u00a0"} {
			if got := cut(chunk.Settings{Strategy: strategy, Tokens: 32}, text, "title"); len(got) != 0 {
				t.Errorf("%s: %q gave %v, want nothing", strategy, text, got)
			}
		}
	}
}

func BenchmarkCut(b *testing.B) {
	text := prose(rand.New(rand.NewPCG(1, 1)), 12000)
	ends := words(text)
	for _, strategy := range strategies[1:] {
		b.Run(string(strategy), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				chunk.Cut(chunk.Settings{Strategy: strategy, Tokens: 256, Overlap: 32}, chunk.Text{Text: text, Ends: ends},
					chunk.Text{})
			}
		})
	}
}
