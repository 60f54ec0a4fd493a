package canary

import (
	"log/slog"
	"strings"
	"testing"
)

// Search must find the words in the forms in which programs write them.
func TestSearch_FindsWhatNoOutputMayHold(t *testing.T) {
	t.Parallel()
	for _, word := range []string{Secret, Text} {
		var text, json strings.Builder
		for _, h := range []slog.Handler{slog.NewTextHandler(&text, nil), slog.NewJSONHandler(&json, nil)} {
			slog.New(h).Info("cannot connect", "url", `postgres://app:"`+word+`"@h/d`)
		}
		for _, output := range []string{word, "x" + word + "y\n", text.String(), json.String(), strings.Repeat("long ", 1e5) +
			word} {
			var c cage
			if c.search("a program", []byte(output)) {
				t.Errorf("not found in %.100q", output)
			}
			if err := c.err(); err == nil || !strings.Contains(err.Error(), "a program") || len(err.Error()) > 1000 {
				t.Errorf("%.100q: %v", output, err)
			}
		}
	}
	var c cage
	if c.search("another", []byte(Text)); c.outputs != 1 || c.bytes != int64(len(Text)) || len(c.found) != 1 {
		t.Errorf("counted %d outputs of %d bytes with %d that hold one", c.outputs, c.bytes, len(c.found))
	}
	c = cage{}
	if !c.search("a program", []byte("nothing: canary, secret, text")) || c.err() != nil {
		t.Errorf("found in what holds none: %v", c.err())
	}
	if !SearchSecrets("a search", []byte(Text)) || Found() != nil {
		t.Errorf("the text of a row is found where it belongs: %v", Found())
	}
}
