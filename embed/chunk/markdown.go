package chunk

import (
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// blocks parses the blocks of Markdown, including tables, but not inline markup.
var blocks = parser.NewParser(
	parser.WithBlockParsers(parser.DefaultBlockParsers()...),
	parser.WithParagraphTransformers(util.Prioritized(extension.NewTableParagraphTransformer(), 200)),
)

// markdown adds the units of a text with markup: parts are headings, paragraphs, lists, quotes, tables and blocks of
// code.
func (c *cutter) markdown() {
	if nested(c.text) {
		c.paragraphs()
		return
	}
	root := blocks.Parse(text.NewReader([]byte(c.text)))
	nodes := c.children(root, 0, len(c.text))
	if len(nodes) == 0 || nodes[0].start > 0 {
		c.section(nil) // only white space can precede the first block
		end := len(c.text)
		if len(nodes) > 0 {
			end = nodes[0].start
		}
		c.emit(0, end, hard)
	}
	var path []title
	afterHeading := false
	for _, n := range nodes {
		h, isHeading := n.node.(*ast.Heading)
		switch {
		case isHeading:
			own := c.heading(h, n.start)
			for len(path) > 0 && path[len(path)-1].level >= own.level {
				path = path[:len(path)-1]
			}
			path = append(slices.Clip(path), own)
			c.section(path)
			if !afterHeading {
				c.next, c.above = hard, n.start
			}
			c.divide(byWord, n.start, n.end, heading)
		default:
			if len(c.sections) == 0 {
				c.section(nil)
			}
			b := part
			if afterHeading {
				b = heading
			}
			c.block(n, b, 0)
		}
		afterHeading = isHeading
	}
}

// mostMarkers is the limit of list and quote marks at the start of a line, in bytes. The time to parse grows with their
// square.
const mostMarkers = 256

// nested reports whether a text is nested too deeply to be parsed.
func nested(text string) bool {
	for line := range strings.Lines(text) {
		if marks := len(line) - len(strings.TrimLeft(line, " \t>-+*.)0123456789")); marks > mostMarkers {
			return true
		}
	}
	return false
}

// deepest is how many levels of nested lists and quotes are followed.
const deepest = 16

// block adds the units of a block.
func (c *cutter) block(n block, b border, depth int) {
	if c.whole(n.start, n.end, b) {
		c.emit(n.start, n.end, b)
		return
	}
	switch n.node.(type) {
	case *ast.List, *ast.ListItem, *ast.Blockquote:
		children := c.children(n.node, n.start, n.end)
		if len(children) == 0 || depth == deepest {
			c.divide(bySentence, n.start, n.end, b)
			return
		}
		for i, child := range children {
			if i == 0 {
				child.start = n.start
			} else {
				b = item
			}
			c.block(child, b, depth+1)
		}
	case *ast.FencedCodeBlock, *ast.CodeBlock, *extast.Table, *ast.HTMLBlock:
		c.divide(byLine, n.start, n.end, b)
	default:
		c.divide(bySentence, n.start, n.end, b)
	}
}

// block is a block with its range of lines, including empty ones after it.
type block struct {
	node       ast.Node
	start, end int
}

// children returns the blocks in a node with a range of lines. Those that begin on the same line are one block.
func (c *cutter) children(n ast.Node, start, end int) []block {
	var list []block
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if child.Type() != ast.TypeBlock || child.Pos() < start || child.Pos() >= end {
			continue
		}
		from := start // no need to look further back
		if len(list) > 0 {
			from = list[len(list)-1].start
		}
		at := from + strings.LastIndexByte(c.text[from:max(from, child.Pos())], '\n') + 1
		if len(list) > 0 {
			if at <= from {
				continue
			}
			list[len(list)-1].end = at
		}
		list = append(list, block{child, at, end})
	}
	return list
}

func (c *cutter) heading(h *ast.Heading, start int) title {
	var words []string
	end := start
	for i := range h.Lines().Len() {
		at := h.Lines().At(i)
		words = append(words, strings.Fields(c.text[at.Start:at.Stop])...)
		end = at.Stop
	}
	return title{start: start, level: h.Level, text: strings.Join(words, " "), tokens: c.tokens(start, max(start, end))}
}
