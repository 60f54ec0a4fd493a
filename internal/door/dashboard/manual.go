package dashboard

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"

	"github.com/embedsidecar/embedsidecar/docs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// tree is the location of linked files that the program does not contain.
const tree = "https://github.com/embedsidecar/embedsidecar/blob/main/"

// markdown renders the project's own pages, including their inline HTML. They contain no styles, which the policy
// forbids.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()),
)

// helpOf maps a page to its page of the manual.
var helpOf = map[string]string{
	"overview": "states", "pipelines": "configuration", "pipeline": "states", "queue": "operations#a-row-seems-wrong",
	"errors": "errors", "dead-letters": "operations#dead-letters", "search": "search",
	"row":    "operations#a-row-seems-wrong",
	"system": "operations", "models": "models", "checks": "operations", "config": "configuration", "audit": "sql",
	"databases": "databases", "confirm": "operations", "trouble": "errors",
}

// helpPage lists the pages of the manual.
type helpPage struct {
	States []health.Entry
	Manual []link
}

func (*Dashboard) help(*http.Request) (view, error) {
	names, _ := fs.Glob(docs.Pages, "*.md")
	o := helpPage{States: health.Table()}
	for _, name := range names {
		source, _ := docs.Pages.ReadFile(name)
		title, _, _ := strings.Cut(strings.TrimPrefix(string(source), "# "), "\n")
		o.Manual = append(o.Manual, link{Name: title, Path: "/help/" + strings.TrimSuffix(name, ".md")})
	}
	return view{page: "help", title: "Help", data: &o}, nil
}

// manual serves a page of the manual.
func (d *Dashboard) manual(r *http.Request) (view, error) {
	name := r.PathValue("name") + ".md"
	source, err := docs.Pages.ReadFile(name)
	if err != nil {
		return view{}, errNoPage
	}
	root := markdown.Parser().Parse(text.NewReader(source))
	title := ""
	if first, ok := root.FirstChild().(*ast.Heading); ok {
		title = string(first.Lines().Value(source))
		root.RemoveChild(root, first) // the frame shows it
	}
	d.lead(root, path.Dir(name))
	var page bytes.Buffer
	if err := markdown.Renderer().Render(&page, source, root); err != nil {
		return view{}, fmt.Errorf("render the manual: %w", err)
	}
	return view{page: "manual", title: title, data: template.HTML(page.String())}, nil //nolint:gosec // compiled in
}

// lead rewrites links between pages of the manual to the dashboard, and replaces pictures by their texts.
func (d *Dashboard) lead(root ast.Node, folder string) {
	var pictures []ast.Node
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Image:
			if entering {
				pictures = append(pictures, n)
			}
		case *ast.Link:
			to, fragment, marked := strings.Cut(string(n.Destination), "#")
			if !entering || to == "" || strings.Contains(to, "://") {
				break
			}
			to = path.Join("docs", folder, to)
			page, carried := strings.CutPrefix(strings.TrimSuffix(to, ".md"), "docs/")
			switch _, err := docs.Pages.ReadFile(page + ".md"); {
			case carried && err == nil:
				to = d.at("/help/" + page)
			default:
				to = tree + to
			}
			if marked {
				to += "#" + fragment
			}
			n.Destination = []byte(to)
		}
		return ast.WalkContinue, nil
	})
	for _, p := range pictures {
		words := ast.NewEmphasis(1)
		for child := p.FirstChild(); child != nil; child = p.FirstChild() {
			words.AppendChild(words, child)
		}
		p.Parent().ReplaceChild(p.Parent(), p, words)
	}
}

// helpFor returns the link to the manual for a page; "": none.
func (d *Dashboard) helpFor(page string) string {
	name, fragment, marked := strings.Cut(helpOf[page], "#")
	switch {
	case name == "":
		return ""
	case marked:
		return d.at("/help/"+name) + "#" + fragment
	}
	return d.at("/help/" + name)
}
