package chunk

import (
	"slices"
	"strings"
	"unicode"
)

// joint separates the parts of a context line.
const joint = " > "

// jointTokens is the token cost of a joint, or of the empty line after a context, with any tokenizer.
const jointTokens = 2

// title is a heading: its position, its depth from 1, its text on one line and the number of its tokens.
type title struct {
	start, level, tokens int
	text                 string
}

// section is the text under a heading.
type section struct {
	title string
	path  []title // enclosing headings and the section's own, outermost first, as many as fit
	limit int     // token limit of a chunk's text
}

// section begins a section. The units that follow belong to it.
func (c *cutter) section(path []title) {
	cost := 0
	if c.title != "" {
		cost = c.titles + jointTokens
	}
	for i, t := range slices.Backward(path) { // the innermost are most specific
		with := cost + t.tokens + jointTokens
		if with > c.settings.Tokens/contextShare {
			path = path[i+1:]
			break
		}
		cost = with
	}
	c.sections = append(c.sections, section{title: c.title, path: path, limit: max(1, c.settings.Tokens-cost)})
}

// context returns the context line of a chunk: title and headings. It omits headings inside the chunk, and those equal
// to the part before, such as a first heading that repeats the title.
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

// shorten puts a title on one line, cut after a word to at most most tokens, and returns their number.
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
