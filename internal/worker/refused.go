package worker

import "strings"

// longestMessage is how many characters of somebody else's message are kept.
const longestMessage = 200

// oneLine is the beginning of a message, on one line.
func oneLine(message string, limit int) string {
	message = strings.Join(strings.Fields(message), " ")
	if runes := []rune(message); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return message
}

// without leaves out what a message has in common with a text: every run of several characters that stands in both.
func without(message, text string) string {
	const several = 8
	text = strings.Join(strings.Fields(text), " ")
	if text != "" && len([]rune(text)) < several {
		return strings.ReplaceAll(message, text, "[...]")
	}
	runes := []rune(message)
	common := make([]bool, len(runes))
	for i := 0; i+several <= len(runes); i++ {
		if strings.Contains(text, string(runes[i:i+several])) {
			for j := range several {
				common[i+j] = true
			}
		}
	}
	var b strings.Builder
	for i, r := range runes {
		switch {
		case !common[i]:
			b.WriteRune(r)
		case i == 0 || !common[i-1]:
			b.WriteString("[...]")
		}
	}
	return b.String()
}
