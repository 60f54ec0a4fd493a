package chunk

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The strategies Character and Recursive cut like LangChain's text splitters, which many programs use: sizes are in
// characters, and chunks are filled one after the other.

// piece is a part of a text between two separators.
type piece struct{ start, end, size int } // size in characters

// splitter cuts one text by characters.
type splitter struct {
	text   string
	size   int // limit of characters in a chunk, if separators allow it
	repeat int // limit of characters that a chunk repeats of the one before
	chunks []Chunk
}

// byCharacters cuts a text as LangChain does.
func byCharacters(s Settings, text, title string) []Chunk {
	c := &splitter{text: text, size: s.Characters, repeat: s.Overlap}
	joined := ""
	if s.Strategy == Character {
		if len(s.Separators) > 0 {
			joined = s.Separators[0]
		}
		c.fill(c.split(0, len(text), joined, false), utf8.RuneCountInString(joined))
	} else {
		c.recurse(0, len(text), s.Separators)
	}
	for i := range c.chunks {
		c.chunks[i].Context, c.chunks[i].Between, c.chunks[i].Joined = title, s.Between, joined
	}
	return c.chunks
}

// split returns the non-empty parts of a range; with keep, each begins with the separator before it. The empty
// separator splits between any two characters.
func (c *splitter) split(start, end int, separator string, keep bool) (list []piece) {
	add := func(from, to int) {
		if from < to {
			list = append(list, piece{from, to, utf8.RuneCountInString(c.text[from:to])})
		}
	}
	if separator == "" {
		for at := start; at < end; {
			_, n := utf8.DecodeRuneInString(c.text[at:end])
			add(at, at+n)
			at += n
		}
		return list
	}
	from := start
	for at := start; ; {
		next := strings.Index(c.text[at:end], separator)
		if next < 0 {
			add(from, end)
			return list
		}
		add(from, at+next)
		from, at = at+next, at+next+len(separator)
		if !keep {
			from = at
		}
	}
}

// recurse cuts a range by the first separator that occurs in it, and parts that are still too long by the next ones.
func (c *splitter) recurse(start, end int, separators []string) {
	separator, rest := "", []string(nil)
	if len(separators) > 0 {
		separator = separators[len(separators)-1]
	}
	for i, s := range separators {
		if s == "" || strings.Contains(c.text[start:end], s) {
			separator = s
			if s != "" {
				rest = separators[i+1:]
			}
			break
		}
	}
	var small []piece
	for _, p := range c.split(start, end, separator, true) {
		if p.size < c.size {
			small = append(small, p)
			continue
		}
		c.fill(small, 0)
		small = nil
		if len(rest) == 0 {
			c.add(p.start, p.end, false)
		} else {
			c.recurse(p.start, p.end, rest)
		}
	}
	c.fill(small, 0)
}

// fill makes chunks of as many pieces as fit; between is the number of characters of the separator.
func (c *splitter) fill(pieces []piece, between int) {
	first, total := 0, 0 // of the chunk that is being filled
	sep := func(n int) int {
		if n > 0 {
			return between
		}
		return 0
	}
	for i, p := range pieces {
		if total+p.size+sep(i-first) > c.size && i > first {
			c.add(pieces[first].start, pieces[i-1].end, true)
			for total > c.repeat || total+p.size+sep(i-first) > c.size && total > 0 {
				total -= pieces[first].size + sep(i-first-1)
				first++
			}
		}
		total += p.size + sep(i-first)
	}
	if first < len(pieces) {
		c.add(pieces[first].start, pieces[len(pieces)-1].end, true)
	}
}

// add adds a chunk, with strip without surrounding white space. It skips blank chunks.
func (c *splitter) add(start, end int, strip bool) {
	if strip {
		end = start + len(strings.TrimRightFunc(c.text[start:end], blank))
		start = end - len(strings.TrimLeftFunc(c.text[start:end], blank))
	}
	if start < end && strings.TrimFunc(c.text[start:end], blank) != "" {
		c.chunks = append(c.chunks, Chunk{Start: start, End: end})
	}
}

// blank reports whether Python treats a character as white space.
func blank(r rune) bool { return unicode.IsSpace(r) || '\x1c' <= r && r <= '\x1f' }

// collapse replaces each run of separators by one.
func collapse(text, separator string) string {
	parts := slices.DeleteFunc(strings.Split(text, separator), func(part string) bool { return part == "" })
	return strings.Join(parts, separator)
}
