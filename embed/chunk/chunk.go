// Package chunk cuts a text into chunks that a model reads whole. It is pure: the same text, tokens and settings
// always give the same chunks.
//
// An edit moves no border that it does not touch. A text is cut where it is made up of parts anyway (sections,
// paragraphs, code blocks); a part that fits is a chunk, whatever stands before and after it, so that it may be moved
// at no cost. Where parts have to be cut or joined, the order in which that happens follows from the words beside
// each border and not from their place in the text: an edit changes its own chunk and, at worst, a few beside it.
// Filling chunks one after the other would move every border behind the edit.
package chunk

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Strategy says where a text may be cut.
type Strategy string

// The strategies.
const (
	None      Strategy = "none"      // nowhere: the whole text is one chunk
	Tokens    Strategy = "tokens"    // between two words
	Sentences Strategy = "sentences" // between paragraphs; a paragraph that is too long between sentences
	Markdown  Strategy = "markdown"  // between headings, paragraphs, lists, tables and code blocks
	Character Strategy = "character" // at a separator, as LangChain's CharacterTextSplitter does
	Recursive Strategy = "recursive" // at the first of several separators, as RecursiveCharacterTextSplitter does
)

// Settings say how to cut.
type Settings struct {
	Strategy Strategy
	Tokens   int // most tokens in what is embedded of a chunk, its context line included
	Overlap  int // most tokens repeated from the chunk before, where a paragraph, table or code block had to be cut
	// of Character and Recursive, where Overlap is in characters, too: most characters of the text of a chunk
	Characters int
	Separators []string // in the order in which they are tried; Character has one
	Between    string   // what stands between a context and its chunk; "": an empty line
}

// Within returns the settings for a model that reads so many tokens (0: any number) and has some of its own around a
// text.
func (s Settings) Within(maxTokens, around int) Settings {
	const least = 8 // whatever the model describes
	if maxTokens > 0 {
		s.Tokens = max(least, min(s.Tokens, maxTokens-around))
	}
	return s
}

// Text is a text, or a title, and where its tokens end.
type Text struct {
	Text string
	Ends []int // offset in bytes after each token, not decreasing
}

// Chunk is a piece of a text: the bytes from Start up to End, both at borders of characters.
type Chunk struct {
	Start, End int
	Context    string // for the model to read first, as one line: title and headings; may be empty
	Between    string // what stands between the two; "": an empty line
	Joined     string // a separator of which a run counts as one; "": none
}

// Of is the text of the chunk, without its context.
func (c Chunk) Of(text string) string {
	own := text[c.Start:c.End]
	if c.Joined != "" {
		own = collapse(own, c.Joined)
	}
	return own
}

// Embedded is what is embedded of a chunk of the text.
func (c Chunk) Embedded(text string) string {
	if c.Context == "" && c.Between == "" {
		return c.Of(text)
	}
	return c.Context + cmp.Or(c.Between, "\n\n") + c.Of(text)
}

// shares of the limit.
const (
	contextShare = 4 // a context line has at most a quarter
	smallShare   = 4 // a part with less than a quarter is joined to its neighbours
)

// Try is Cut, and keeps a panic of a parser to the text that caused it: what was panicked with may hold the text.
func Try(s Settings, text, title Text) (chunks []Chunk, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cutting it into chunks failed (%T)", p)
		}
	}()
	return Cut(s, text, title), nil
}

// Cut cuts a text. Chunks come in order and hold all of the text but white space around them; they overlap only as
// the settings say. None is empty or nothing but white space. A chunk has more tokens than the limit only if a single
// character has.
//
// The title, which may be empty, begins the context line of every chunk; the headings above the chunk follow with
// Markdown. With Character and Recursive the context is the title as it is.
func Cut(s Settings, text, title Text) []Chunk {
	if s.Strategy == None || s.Strategy == "" {
		if strings.TrimSpace(text.Text) == "" {
			return nil
		}
		context := line(title.Text)
		if s.Between != "" {
			context = title.Text
		}
		return []Chunk{{Start: 0, End: len(text.Text), Context: context, Between: s.Between}}
	}
	if s.Strategy == Character || s.Strategy == Recursive {
		return byCharacters(s, text.Text, title.Text)
	}
	c := newCutter(s, text, title)
	switch s.Strategy {
	case Markdown:
		c.markdown()
	case Sentences:
		c.paragraphs()
	default:
		c.section(nil)
		c.divide(byWord, 0, len(text.Text), word)
	}
	return c.chunks(c.join())
}

func line(title string) string { return strings.Join(strings.Fields(title), " ") }

// chunks turns groups of units into chunks.
func (c *cutter) chunks(groups []group) []Chunk {
	chunks := make([]Chunk, 0, len(groups))
	for _, g := range groups {
		first, last := c.units[g.first], c.units[g.last]
		start, end := c.trim(first.start, last.end)
		if start >= end {
			continue
		}
		if inner(first.border) {
			start = min(start, c.overlap(g.first))
		}
		chunks = append(chunks, Chunk{Start: start, End: end, Context: c.sections[first.section].context(first, last)})
	}
	return chunks
}

// trim leaves white space out on both sides. What Markdown makes of a line depends on its indentation, which is kept.
func (c *cutter) trim(start, end int) (int, int) {
	end = start + len(strings.TrimRightFunc(c.text[start:end], unicode.IsSpace))
	content := end - len(strings.TrimLeftFunc(c.text[start:end], unicode.IsSpace))
	if c.settings.Strategy == Markdown {
		if newline := strings.LastIndexByte(c.text[start:content], '\n'); newline >= 0 {
			return start + newline + 1, end
		}
		return start, end
	}
	return content, end
}

// overlap returns where a chunk that begins with a unit begins when it repeats the end of what stands before: whole
// units if one fits, or else words.
func (c *cutter) overlap(at int) int {
	start := c.units[at].start
	from := start
	for i := at; i > 0 && inner(c.units[i].border) && c.tokens(c.units[i-1].start, start) <= c.settings.Overlap; i-- {
		from = c.units[i-1].start
	}
	if from < start || c.settings.Overlap == 0 {
		from, _ = c.trim(from, c.units[at].end)
		return from
	}
	least := c.units[at-1].start // further back would be more than one unit
	for i := start; i > least; {
		r, size := utf8.DecodeLastRuneInString(c.text[least:i])
		if c.tokens(i-size, start) > c.settings.Overlap {
			break
		}
		i -= size
		if before, _ := utf8.DecodeLastRuneInString(c.text[least:i]); !unicode.IsSpace(r) && (unicode.IsSpace(before) ||
			i == least) {
			from = i
		}
	}
	return from
}
