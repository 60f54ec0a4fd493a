// Package chunk cuts a text into chunks that fit into a model's token limit. It is pure: the same text, tokens and
// settings always give the same chunks.
//
// An edit keeps the borders elsewhere in the text. A text is cut between its parts (sections, paragraphs, code blocks).
// A part that fits is a chunk by itself, so it can be moved without embedding it again. If parts have to be cut or
// joined, the order depends on the words beside each border, not on their position. So an edit changes its own chunk
// and, at worst, a few next to it. Filling chunks one after the other would move every border after the edit.
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
	Sentences Strategy = "sentences" // between paragraphs, and inside long ones between sentences
	Markdown  Strategy = "markdown"  // between headings, paragraphs, lists, tables and code blocks
	Character Strategy = "character" // at a separator, as LangChain's CharacterTextSplitter does
	Recursive Strategy = "recursive" // at the first of several separators, as RecursiveCharacterTextSplitter does
)

// Settings say how to cut.
type Settings struct {
	Strategy Strategy
	Tokens   int // limit of tokens embedded for a chunk, including its context line
	Overlap  int // limit of tokens repeated from the previous chunk, if a paragraph, table or code block had to be cut
	// for Character and Recursive: limit of characters in a chunk; Overlap is then in characters, too
	Characters int
	Separators []string // in the order in which they are tried; Character has one
	Between    string   // text between a context and its chunk; "": an empty line
}

// Within returns the settings for a model with a limit of maxTokens (0: none) that adds around tokens to a text.
func (s Settings) Within(maxTokens, around int) Settings {
	const least = 8 // even if the model's limit is lower
	if maxTokens > 0 {
		s.Tokens = max(least, min(s.Tokens, maxTokens-around))
	}
	return s
}

// Text is a text or a title with the ends of its tokens.
type Text struct {
	Text string
	Ends []int // byte offset after each token, not decreasing
}

// Chunk is a piece of a text: the bytes from Start up to End, both at borders of characters.
type Chunk struct {
	Start, End int
	Context    string // title and headings, embedded before the text; one line, may be empty
	Between    string // text between context and chunk; "": an empty line
	Joined     string // a separator whose runs count as one; "": none
}

// Of is the text of the chunk, without its context.
func (c Chunk) Of(text string) string {
	own := text[c.Start:c.End]
	if c.Joined != "" {
		own = collapse(own, c.Joined)
	}
	return own
}

// Embedded returns what is embedded for a chunk of the text.
func (c Chunk) Embedded(text string) string {
	if c.Context == "" && c.Between == "" {
		return c.Of(text)
	}
	return c.Context + cmp.Or(c.Between, "\n\n") + c.Of(text)
}

// Shares of the token limit.
const (
	contextShare = 4 // a context line has at most a quarter
	smallShare   = 4 // a part with less than a quarter is joined to its neighbours
)

// Try is Cut, but returns an error if a parser panics. The panic's value is not part of the error, because it may
// contain the text.
func Try(s Settings, text, title Text) (chunks []Chunk, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot cut it into chunks (%T)", p)
		}
	}()
	return Cut(s, text, title), nil
}

// Cut cuts a text. Chunks are in order and cover the whole text except white space around them; they overlap only as
// the settings say. No chunk is blank. A chunk exceeds the token limit only if a single character does.
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

// trim removes white space on both sides. It keeps a line's indentation, which is significant in Markdown.
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

// overlap returns the start of a chunk that also repeats the end of the text before its first unit: whole units if one
// fits, or else words.
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
