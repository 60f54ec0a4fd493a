package chunk

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// border is the kind of border between a unit and the one before it. Units are joined in this order, at the weakest
// borders first.
type border int8

const (
	heading  border = iota // after a heading, which belongs to what follows
	token                  // inside a word
	word                   // between words
	sentence               // between sentences, or lines of code
	item                   // between items of a list, rows of a table, or parts of code separated by an empty line
	part                   // between parts: paragraphs, lists, tables, code blocks
	hard                   // before a heading, and at the beginning: never joined
)

// inner reports whether a border is inside a part that had to be cut.
func inner(b border) bool { return b >= token && b <= item }

// unit is a piece of text that is not cut further.
type unit struct {
	start, end int
	border     border // before it
	section    int
}

// cutter cuts one text into units.
type cutter struct {
	settings Settings
	text     string
	ends     []int
	title    string
	titles   int // tokens of the title
	units    []unit
	sections []section
	next     border // the least border before the next unit
	above    int    // start of the headings directly before the current part
}

func newCutter(s Settings, text, title Text) *cutter {
	c := &cutter{settings: s, text: text.Text, ends: spread(text), next: hard}
	c.settings.Overlap = max(0, min(s.Overlap, s.Tokens/2))
	c.title, c.titles = shorten(title, s.Tokens/contextShare)
	return c
}

// longest is how many bytes at most count as one token: for some models a long word or white space is one token, or
// none.
const longest = 32

// spread returns the ends of tokens, moved to borders of characters. It adds more in long stretches without any.
func spread(t Text) []int {
	ends := make([]int, 0, len(t.Ends)+len(t.Text)/longest/4)
	last := 0
	add := func(end int) {
		for end-last > longest {
			last = align(t.Text, last+longest)
			ends = append(ends, last)
		}
	}
	for _, end := range t.Ends {
		end = align(t.Text, min(max(end, last), len(t.Text)))
		add(end)
		ends, last = append(ends, end), end
	}
	add(len(t.Text))
	return ends
}

// align moves an offset forward to the next border of characters.
func align(text string, at int) int {
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return at
}

// tokens counts the tokens that end after start and not after end.
func (c *cutter) tokens(start, end int) int { return c.before(end) - c.before(start) }

func (c *cutter) before(at int) int {
	n, _ := slices.BinarySearch(c.ends, at+1)
	return n
}

// limit is the token limit of a chunk's text in the current section.
func (c *cutter) limit() int { return c.sections[len(c.sections)-1].limit }

// emit adds a unit.
func (c *cutter) emit(start, end int, b border) {
	if start == end {
		return
	}
	c.units = append(c.units, unit{start: start, end: end, border: max(b, c.next), section: len(c.sections) - 1})
	c.next = heading
}

// way is a way to cut a piece that is too long.
type way int8

const (
	bySentence way = iota
	byLine
	byWord
	byToken
)

// divide adds a piece as one unit if it fits, or else divides it further.
func (c *cutter) divide(w way, start, end int, b border) {
	if w != byWord || b != word { // the strategy Tokens cuts between words only
		if c.whole(start, end, b) {
			c.emit(start, end, b)
			return
		}
	}
	switch w {
	case bySentence:
		for start < end {
			length, silent := calm(c.text[start:end])
			if silent {
				c.divide(byWord, start, start+length, b)
			} else {
				c.each(start, start+length, b, sentence, nextSentence, func(s, e int, b border) { c.divide(byWord, s, e, b) })
			}
			start, b = start+length, sentence
		}
	case byLine:
		c.each(start, end, b, sentence, nextLine, func(s, e int, b border) {
			if b == sentence && c.emptyLineBefore(s) {
				b = item
			}
			c.divide(byWord, s, e, b)
		})
	case byWord:
		c.each(start, end, b, word, nextWord, func(s, e int, b border) { c.divide(byToken, s, e, b) })
	case byToken:
		c.eachToken(start, end, b)
	}
}

// whole reports whether a piece fits into a chunk, with the headings before it or with an overlap.
func (c *cutter) whole(start, end int, b border) bool {
	switch {
	case b == heading:
		return c.tokens(c.above, end) <= c.limit()
	case inner(max(b, c.next)):
		return c.tokens(start, end) <= c.limit()-c.settings.Overlap
	}
	return c.tokens(start, end) <= c.limit()
}

// each calls f for the pieces of a range; the first has the border of the range.
func (c *cutter) each(start, end int, first, others border, next func(string) int, f func(start, end int, b border)) {
	b := first
	for start < end {
		stop := start + next(c.text[start:end])
		f(start, stop, b)
		start, b = stop, others
	}
}

// eachToken adds a unit for each token of a word. The last one includes what follows.
func (c *cutter) eachToken(start, end int, b border) {
	for i := c.before(start); start < end; i++ {
		stop := end
		if i < len(c.ends) && c.before(c.ends[i]) < c.before(end) {
			stop = min(c.ends[i], end)
		}
		if stop > start {
			c.emit(start, stop, b)
			start, b = stop, token
		}
	}
}

// mostSilent is the length in bytes above which a stretch without any letter, line end or end of a sentence is not
// searched for sentences: the time for it would grow with its square, because after "a." the rules look for the next
// letter at each space.
const mostSilent = 1 << 10

// calm returns the length of the part at the beginning of a text that has no stretch above mostSilent, or, with silent,
// is such a stretch.
func calm(text string) (length int, silent bool) {
	began := 0 // of the current stretch
	for at, r := range text {
		if !speaks(r) {
			continue
		}
		if at-began > mostSilent {
			if began == 0 {
				return at, true
			}
			return began, false
		}
		began = at + utf8.RuneLen(r)
	}
	switch {
	case len(text)-began <= mostSilent:
		return len(text), false
	case began == 0:
		return len(text), true
	}
	return began, false
}

// speaks reports whether the rules of sentences stop at a character when they look for the next letter.
func speaks(r rune) bool {
	return unicode.IsLetter(r) && !unicode.Is(unicode.Other_Grapheme_Extend, r) ||
		unicode.Is(unicode.Sentence_Terminal, r) || r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// nextSentence returns the length of the first sentence of a text.
func nextSentence(text string) int {
	s := sentences.FromString(text)
	s.Next()
	return len(s.Value())
}

// nextLine returns the length of the first line of a text.
func nextLine(text string) int {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// nextWord returns the length of the first word of a text, with the white space around it.
func nextWord(text string) int {
	begun := false
	for i, r := range text {
		space := unicode.IsSpace(r)
		if !space && begun && i > 0 {
			if before, _ := utf8.DecodeLastRuneInString(text[:i]); unicode.IsSpace(before) {
				return i
			}
		}
		begun = begun || !space
	}
	return len(text)
}

// emptyLineBefore reports whether the previous line is empty.
func (c *cutter) emptyLineBefore(start int) bool {
	if start == 0 {
		return false
	}
	before := c.text[:start-1]
	return strings.TrimSpace(before[strings.LastIndexByte(before, '\n')+1:]) == ""
}

// paragraphs adds the units of a text without markup. Its parts are separated by empty lines.
func (c *cutter) paragraphs() {
	c.section(nil)
	start, blank := 0, false
	for at := 0; at < len(c.text); {
		stop := at + nextLine(c.text[at:])
		empty := strings.TrimSpace(c.text[at:stop]) == ""
		if blank && !empty {
			c.divide(bySentence, start, at, part)
			start = at
		}
		blank, at = empty, stop
	}
	c.divide(bySentence, start, len(c.text), part)
}
