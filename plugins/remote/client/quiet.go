package client

import (
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// The shortest pieces that give something away: of a text, of a key.
const (
	textPiece = 12
	keyPiece  = 5
	mostKept  = 200 // bytes of a message
)

// quiet makes a server's message fit to be shown: one printable line, or nothing at all when it repeats a piece of a
// text or of the key.
func quiet(message, key string, texts []string) string {
	message = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(message, "?"), func(r rune) bool {
		return r <= ' ' ||
			r == 0x7f
	}), " ")
	if message == "" {
		return ""
	}
	if repeats(message, []string{key}, keyPiece) {
		return "(message withheld: it repeats a part of the key)"
	}
	if repeats(message, texts, textPiece) {
		return "(message withheld: it repeats a part of a text)"
	}
	return wording.Cut(message, mostKept)
}

// repeats reports whether a message holds any n bytes in a row of one of the texts, white space aside; of a shorter
// text, all.
func repeats(message string, texts []string, n int) bool {
	message = squeeze(message)
	pieces := map[string]bool{}
	for i := 0; i+n <= len(message); i++ {
		pieces[message[i:i+n]] = true
	}
	for _, text := range texts {
		text = squeeze(text)
		if len(text) < n {
			if len(text) >= 4 && strings.Contains(message, text) {
				return true
			}
			continue
		}
		for i := 0; i+n <= len(text); i++ {
			if pieces[text[i:i+n]] {
				return true
			}
		}
	}
	return false
}

var escapes = strings.NewReplacer(`\n`, "", `\t`, "", `\r`, "")

// squeeze leaves out white space and the escapes of quoted text.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '\\' || r == '"' {
			return -1
		}
		return r
	}, escapes.Replace(s))
}
