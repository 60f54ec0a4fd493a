package host_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
)

func TestTokenize_AnswersInOrderAndSplitsLargeCalls(t *testing.T) {
	t.Parallel()
	h := open(t, options(map[string]string{
		"EMBEDSIDECAR_PLUGIN_MAX_BATCH":       "2",
		"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "20",
	}))
	got, err := h.Tokenize(t.Context(), []string{"two words", "", " \n", "ünï çødé", "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := embed.Tokens{Ends: [][]int{{3, 9}, {}, {}, {5, 13}, {1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if got, err := h.Tokenize(t.Context(), nil); err != nil || len(got.Ends) != 0 {
		t.Errorf("no texts: %v, %v", got, err)
	}
	for _, bad := range []string{strings.Repeat("x", 21), "\xff"} {
		_, err := h.Tokenize(t.Context(), []string{"a", bad})
		if class, _ := embed.Classify(err); class != embed.Data {
			t.Errorf("a text that cannot be sent: %v, want a data error", err)
		}
	}
}

func TestTokenize_AnOldPluginSaysThatItCannot(t *testing.T) {
	t.Parallel()
	h := faulty(t, "no-tokens")
	_, err := h.Tokenize(t.Context(), []string{"a"})
	if class, code := embed.Classify(err); !errors.Is(err, embed.ErrNoTokens) || class != embed.Configuration ||
		code != "no_tokens" {
		t.Errorf("got %v, want the configuration error no_tokens", err)
	}
	mustEmbed(t, h, "it goes on embedding")
}
