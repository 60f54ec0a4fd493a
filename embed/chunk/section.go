package chunk

import (
	"slices"
	"strings"
	"unicode"
)

// joint stands between the parts of a context line.
const joint = " > "

// jointTokens is what a joint, or the empty line after a context, may cost with any tokenizer.
const jointTokens = 2

// title is a heading: its place, its depth from 1, its text on one line and how many tokens that has.
type title struct {
	start, level, tokens int
	text                 string
}

// section is what stands under a heading.
type section struct {
	title string
	path  []title // headings above and the section's own, outermost first, as many as fit
	limit int     // tokens for the text of a chunk
}

// section begins a section. The units that follow belong to it.
func (c *cutter) section(path []title) {
	cost := 0
	if c.title != "" {
		cost = c.titles + jointTokens
	}
	for i, t := range slices.Backward(path) { // the innermost say most
		with := cost + t.tokens + jointTokens
		if with > c.settings.Tokens/contextShare {
			path = path[i+1:]
			break
		}
		cost = with
	}
	c.sections = append(c.sections, section{title: c.title, path: path, limit: max(1, c.settings.Tokens-cost)})
}

// context returns the context line of a chunk: title and headings, but those that are in the chunk, and what says the
// same as the part before it, as the first heading of an article often does.
func (s *section) context(first, last unit) string {
	var parts []string
	if s.title != "" {
		parts = append(parts, s.title)
	}
	for _, t := range s.path {
		again := len(parts) > 0 && strings.EqualFold(parts[len(parts)-1], t.text)
		if t.text != "" && !again && (t.start < first.start || t.start >= last.end) {
			parts = append(parts, t.text)
		}
	}
	return strings.Join(parts, joint)
}

// shorten makes one line of a title, cut after a word so that it has at most so many tokens, and counts them.
func shorten(t Text, most int) (string, int) {
	c := cutter{text: t.Text, ends: spread(t)}
	end := len(t.Text)
	for end > 0 && c.tokens(0, end) > most {
		cut := strings.TrimRightFunc(t.Text[:end], unicode.IsSpace)
		end = strings.LastIndexFunc(cut, unicode.IsSpace)
		end = max(end, 0)
	}
	return line(t.Text[:end]), c.tokens(0, end)
}
