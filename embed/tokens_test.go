package embed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// letters is a script whose tokens are words, and that records its calls.
type letters struct {
	script
	asked []string
	limit int
}

func (l *letters) Describe(context.Context) (Description, error) {
	return Description{Dims: 1, MaxBatchBytes: l.limit}, nil
}

func (l *letters) Tokenize(_ context.Context, texts []string) (Tokens, error) {
	tokens := Tokens{Around: 2}
	for _, text := range texts {
		l.asked = append(l.asked, text)
		var ends []int
		for at := 0; at < len(text); {
			rest := strings.TrimLeft(text[at:], " ")
			at = len(text) - len(rest)
			word, _, _ := strings.Cut(rest, " ")
			if at += len(word); word != "" {
				ends = append(ends, at)
			}
		}
		tokens.Ends = append(tokens.Ends, ends)
	}
	return tokens, nil
}

func TestService_TokenizesLongTextsInSegments(t *testing.T) {
	e := &letters{limit: 10}
	texts := []string{"", "one two three four", "ünï çødé", strings.Repeat("é", 12)}
	got, err := NewService(e, 0).Tokenize(t.Context(), texts, false)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int{nil, {3, 7, 13, 18}, {5, 13}, {10, 20, 24}} // a word longer than a segment is cut
	if got.Around != 2 || len(got.Ends) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if !slices.Equal(got.Ends[i], want[i]) {
			t.Errorf("%q: ends %v, want %v", texts[i], got.Ends[i], want[i])
		}
	}
	for _, piece := range e.asked {
		if len(piece) > e.limit || !strings.Contains(strings.Join(texts, "\n"), piece) {
			t.Errorf("asked about %q", piece)
		}
	}
}

func TestService_SaysWhenTheEmbedderKnowsNoTokens(t *testing.T) {
	if _, err := NewService(&script{}, 0).Tokenize(t.Context(), []string{"a"}, false); !errors.Is(err, ErrNoTokens) {
		t.Errorf("got %v, want ErrNoTokens", err)
	}
}

// A successful Tokenize must not end an embedder's backoff.
func TestService_TokensAreNoSignOfRecovery(t *testing.T) {
	t.Parallel()
	s := NewService(&letters{}, 0)
	s.note(&Error{Class: Transient, Code: "unavailable", RetryAfter: time.Hour})
	if _, err := s.Tokenize(t.Context(), []string{"two words"}, false); err != nil {
		t.Fatal(err)
	}
	if s.Rest() < time.Minute {
		t.Errorf("it rests for %s", s.Rest())
	}
}

// hangs is an embedder of letters that has no answer for calls with some texts.
type hangs struct {
	letters
	never string
	calls int
}

func (h *hangs) Tokenize(ctx context.Context, texts []string) (Tokens, error) {
	h.calls++
	for _, text := range texts {
		if strings.HasPrefix(text, h.never) {
			return Tokens{}, &Error{Class: Transient, Code: "deadline"}
		}
	}
	return h.letters.Tokenize(ctx, texts)
}

// TestP5_TextsWhoseTokensAreNeverToldStayAlone: texts whose tokens an embedder never tells keep no others back, and an
// embedder that tells none is not asked about each.
func TestP5_TextsWhoseTokensAreNeverToldStayAlone(t *testing.T) {
	t.Parallel()
	texts := []string{"bad 1", "", "bad 2", "", "bad 3", "", "bad 4", "", "bad 5", "", "good 1", "", "good 2", "good"}
	e := &hangs{never: "bad"}
	s := NewService(e, 0)
	var got Tokens
	err := errors.New("none yet")
	for tries := 0; err != nil; tries++ {
		if got, err = s.Tokenize(t.Context(), texts, false); tries == 10 {
			t.Fatalf("the good ones have no answer yet: %v", err)
		}
	}
	if ends := got.Ends[12]; !slices.Equal(ends, []int{4, 6}) || len(got.Failed) != 5 || got.Around != 2 {
		t.Errorf("got %+v", got)
	}
	for i, f := range got.Failed {
		if class, _ := Classify(f.Err); f.At != 2*i || class != Transient {
			t.Errorf("text %d: %v", f.At, f.Err)
		}
	}
	if got, err = s.Tokenize(t.Context(), texts[10:], false); err != nil || len(got.Failed) > 0 {
		t.Errorf("without them: %+v, %v", got, err)
	}
	down := &hangs{}
	s = NewService(down, 0)
	for range 10 {
		if _, err := s.Tokenize(t.Context(), texts, false); err == nil {
			t.Error("nothing was answered, and yet it knows")
		}
	}
	if down.calls > 30 {
		t.Errorf("%d calls of an embedder that is down", down.calls)
	}
}
