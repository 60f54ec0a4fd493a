package worker

import (
	"crypto/sha256"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func hashOf(s string) [sha256.Size]byte { return pipeline.TextHash(s) }

// letters are the chunks of a text, a letter each.
func letters(text string) []rows.Chunk {
	list := make([]rows.Chunk, len(text))
	for i := range text {
		list[i].Hash = hashOf(text[i : i+1])
	}
	return list
}

// storedLetters are the same as they are stored.
func storedLetters(text string) []rows.StoredChunk {
	list := make([]rows.StoredChunk, len(text))
	for i := range text {
		list[i] = rows.StoredChunk{No: i, Hash: hashOf(text[i : i+1])}
	}
	return list
}

// Of an edited text a chunk is sent only if nothing that is stored of the row can serve, and nothing stored serves
// twice.
func TestMatch_TakesWhatIsStoredOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, now string
		from        []int // place of the stored chunk; -1: it is embedded
		stays       []bool
	}{
		{"abc", "abc", []int{0, 1, 2}, []bool{true, true, true}},
		{"abc", "xabc", []int{-1, 0, 1, 2}, []bool{false, false, false, false}},
		{"abc", "bc", []int{1, 2}, []bool{false, false}},
		{"abc", "axc", []int{0, -1, 2}, []bool{true, false, true}},
		{"aab", "aaa", []int{0, 1, -1}, []bool{true, true, false}},
		{"ab", "baa", []int{1, 0, -1}, []bool{false, false, false}},
		{"", "a", []int{-1}, []bool{false}},
	} {
		it := item{action: vectorIn, chunks: letters(c.now)}
		it.match(storedLetters(c.before))
		it.number()
		for i := range it.chunks {
			p, from := &it.chunks[i], -1
			if p.From != nil {
				from = p.From.No
			}
			if from != c.from[i] || p.Stays != c.stays[i] || p.Unknown() != (c.from[i] < 0) {
				t.Errorf("%q after %q: chunk %d comes from %d and stays: %t, want %d, %t", c.now, c.before, i, from, p.Stays,
					c.from[i], c.stays[i])
			}
		}
	}
}

// A row whose key is spelled anew has every chunk written, though each is where it was.
func TestNumber_OfAnotherSpelling(t *testing.T) {
	t.Parallel()
	it := item{action: vectorIn, chunks: letters("ab")}
	stored := storedLetters("ab")
	stored[1].Respell = true
	it.match(stored)
	it.number()
	if !it.chunks[0].Stays || it.chunks[1].Stays {
		t.Errorf("the first stays: %t, the respelled one: %t", it.chunks[0].Stays, it.chunks[1].Stays)
	}
}

// Chunks without a token get no number, and a row of nothing else has no text.
func TestNumber_LeavesOutWhatHasNoToken(t *testing.T) {
	t.Parallel()
	it := item{action: vectorIn, chunks: letters("abc")}
	it.chunks[1].Empty = true
	table := rows.New(&pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}, Form: pipeline.Form{Chunked: true}}, nil, rows.Options{})
	hash := func() [pipeline.VectorHashSize]byte { w := it.write(); return table.VectorHash(&w) }
	whole := hash()
	it.number()
	if len(it.chunks) != 2 || it.chunks[1].Hash != hashOf("c") {
		t.Fatalf("%d chunks are left", len(it.chunks))
	}
	if hash() == whole {
		t.Error("the hash of the chunks is that of other chunks")
	}
	for i := range it.chunks {
		it.chunks[i].Empty = true
	}
	it.number()
	if it.action != empty {
		t.Errorf("a row without a token: action %d", it.action)
	}
}

func TestGroups_EndWhereTheyAreFull(t *testing.T) {
	t.Parallel()
	w := New(Options{Pipeline: &pipeline.Pipeline{}, Work: Work{BatchRows: 4}})
	items := []item{{chunks: letters("ab")}, {chunks: letters("cd")}, {chunks: letters("e")}, {chunks: letters("fghijkl")}}
	for begin, want := range []int{2, 3, 3, 4} { // the last is more than a batch, and goes alone
		if got := w.groupEnd(items, begin); got != want {
			t.Errorf("the group from %d ends at %d, want %d", begin, got, want)
		}
	}
	texts := make([]item, 3)
	for i := range texts {
		texts[i].row.Text = string(make([]byte, preparedText/2+1))
	}
	if got := textsEnd(texts, 0); got != 1 {
		t.Errorf("%d texts are prepared at a time, want 1", got)
	}
	if got := textsEnd(texts[:1], 0); got != 1 {
		t.Errorf("one text ends at %d", got)
	}
}
