package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// escaper writes JSON with the escapes that encoding/json leaves out.
type escaper struct{ to io.Writer }

func (e escaper) Write(body []byte) (int, error) {
	var b bytes.Buffer
	for _, r := range string(body) {
		if !wording.Tricks(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, half)
		}
	}
	if _, err := e.to.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(body), nil
}

// quoter has YAML quote, with escapes, what it would print as it is.
type quoter struct{}

func (q quoter) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.StringNode); ok && strings.ContainsFunc(n.Value, wording.Tricks) {
		n.Token.Type = token.DoubleQuoteType
	}
	return q
}
