package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
)

// maxFile keeps a wrong path, to a dump or a device, from filling the memory.
const maxFile = 4 << 20

// maxDepth is deeper than any valid file, and stops aliases that contain themselves. maxNested limits the parser's
// memory, which grows with the square of the nesting. maxNodes stops aliases that contain others many times.
const (
	maxDepth  = 16
	maxNested = 500
	maxNodes  = 1_000_000
)

// reader traverses a YAML file along its structure. It continues after a mistake, to report all of them at once.
type reader struct {
	name     string // of the file
	lines    []string
	lookup   func(string) (string, bool) // of variables; nil: no variables, and $ is literal
	put      func(s *Setting, path string, values []string, list bool) error
	anchors  map[string]ast.Node
	nodes    int // number of nodes read so far
	problems []Problem
	origins  map[string]origin
}

// origin is where a value was set: a flag, a variable, or a position in a file, with its line and a caret below it.
type origin struct{ place, excerpt string }

// read passes the values of a file to put.
func (r *reader) read(data []byte, root *place) {
	r.anchors, r.origins, r.lines = map[string]ast.Node{}, map[string]origin{}, strings.Split(string(data), "\n")
	switch at := invalidAt(string(data)); {
	case len(data) > maxFile:
		r.problems = []Problem{{Place: r.name, Message: fmt.Sprintf("the file is larger than %s", formatSize(maxFile))}}
		return
	case at >= 0:
		line := 1 + bytes.Count(data[:at], []byte("\n"))
		r.problems = []Problem{{Place: fmt.Sprintf("%s:%d", r.name, line), Message: "the file is not UTF-8"}}
		return
	}
	file, err := parse(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		r.syntax(err)
		return
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			r.fail("", doc.Body.GetToken(), "a second document begins here: the file holds only one")
			return
		default:
			body = doc.Body
		}
	}
	if body != nil {
		ast.Walk(anchors(r.anchors), body)
		r.walk(body, "", root, 0)
	}
}

// anchors collects the targets of aliases.
type anchors map[string]ast.Node

// Visit implements ast.Visitor.
func (a anchors) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.AnchorNode); ok {
		a[n.Name.GetToken().Value] = n.Value
	}
	return a
}

// parse recovers from panics of the parser. It has never panicked in our fuzzing, but a user's file must not be the
// first.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read as YAML (%v)", p)
		}
	}()
	if nested(data) {
		return nil, errors.New("the file is nested too deeply")
	}
	return parser.ParseBytes(data, 0)
}

// nested reports whether lists and mappings are too deep for the parser. It ignores brackets in texts and comments.
func nested(data []byte) bool {
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= maxNested {
		return false
	}
	depth := 0
	for _, t := range lexer.Tokenize(string(data)) {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			if depth++; depth > maxNested {
				return true
			}
		case token.SequenceEndType, token.MappingEndType:
			depth--
		default:
		}
	}
	return false
}

var flowVariable = regexp.MustCompile(`[{\[,:]\s*[^"'\s]*\$\{`)

func (r *reader) syntax(err error) {
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		r.problems = append(r.problems, Problem{Place: r.name, Message: redactText(err.Error())})
		return
	}
	message := "the file is not valid YAML: " + located.GetMessage()
	if n := located.GetToken().Position.Line; n > 0 && n <= len(r.lines) && flowVariable.MatchString(r.lines[n-1]) &&
		strings.ContainsAny(r.lines[n-1], "{[") {
		message += "; inside { } and [ ] a variable needs quotes: \"${NAME}\""
	}
	r.fail("", located.GetToken(), message)
}

// tooDeep reports a mistake if a node is nested too deeply.
func (r *reader) tooDeep(node ast.Node, path string, depth int) bool {
	if depth > maxDepth {
		r.fail(path, node.GetToken(), "the file is nested too deeply, or an alias contains itself")
	}
	return depth > maxDepth
}

func (r *reader) walk(node ast.Node, path string, p *place, depth int) {
	if r.tooDeep(node, path, depth) {
		return
	}
	node, ok := r.unwrap(node, path)
	if !ok {
		return
	}
	switch n := node.(type) {
	case *ast.NullNode:
		if p.fields == nil && !p.takesList() {
			r.fail(path, n.GetToken(), noValue)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		if p.takesKeys() {
			r.json(node, path, p, depth)
			return
		}
		if p.fields == nil {
			r.fail(path, startOf(node), "expected "+p.want()+", found keys and values"+unquotedHint(path))
			return
		}
		r.origins[path] = r.origin(startOf(node))
		r.mapping(node, path, p, depth, map[string]bool{})
	case *ast.SequenceNode:
		if p.takesJoins() {
			r.json(node, path, p, depth)
			return
		}
		r.sequence(n, path, p, depth)
	default:
		if !p.takesValue() {
			message := "expected " + p.want() + ", found a single value"
			if p.fields != nil {
				message += ": its keys are " + strings.Join(p.keys(), ", ")
			}
			r.fail(path, node.GetToken(), message)
		} else if value, ok := r.scalar(node, path); ok {
			r.set(p.Setting, path, node, []string{value}, false)
		}
	}
}

// json passes on free-form keys and values as JSON.
func (r *reader) json(node ast.Node, path string, p *place, depth int) {
	value, ok := r.plain(node, path, depth)
	if !ok {
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		r.fail(path, node.GetToken(), "this cannot be written as JSON")
		return
	}
	r.set(p.Setting, path, node, []string{string(text)}, false)
}

// plain converts a node for JSON: null stays null.
func (r *reader) plain(node ast.Node, path string, depth int) (value any, ok bool) {
	if r.tooDeep(node, path, depth) {
		return nil, false
	}
	if node, ok = r.unwrap(node, path); !ok {
		return nil, false
	}
	switch n := node.(type) {
	case *ast.NullNode:
		return nil, true
	case *ast.BoolNode:
		return n.Value, true
	case *ast.IntegerNode:
		return n.Value, true
	case *ast.FloatNode:
		return n.Value, true
	case *ast.SequenceNode:
		list := []any{}
		for i, item := range n.Values {
			value, ok := r.plain(item, index(path, i), depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case *ast.MappingNode, *ast.MappingValueNode:
		values := map[string]any{}
		for _, entry := range entries(node) {
			key := entry.Key.GetToken().Value
			if values[key], ok = r.plain(entry.Value, path+"."+key, depth+1); !ok {
				return nil, false
			}
		}
		return values, true
	}
	return r.scalar(node, path)
}

// set passes on a value.
func (r *reader) set(s *Setting, path string, node ast.Node, values []string, list bool) {
	r.origins[path] = r.origin(node.GetToken())
	if err := r.put(s, path, values, list); err != nil {
		r.reject(path, node.GetToken(), err)
	}
}

const noValue = "there is no value: give one, or remove the line"

func unquotedHint(path string) string {
	if strings.HasPrefix(path, "pipelines[") {
		return "; a pipeline in one line needs quotes around it"
	}
	return ""
}

// mapping reads keys and values; seen has the previous keys. (The parser refuses a repeated key.)
func (r *reader) mapping(node ast.Node, path string, p *place, depth int, seen map[string]bool) {
	if r.tooDeep(node, path, depth) {
		return
	}
	var merges []ast.Node
	for _, entry := range entries(node) {
		key := entry.Key.GetToken().Value
		next, known := p.fields[key]
		switch {
		case entry.Key.IsMergeKey():
			merges = append(merges, entry.Value)
		case seen[key], path == "" && strings.HasPrefix(key, "x-"): // reserved for anchors and other programs
		case !known && strings.Contains(entry.Value.GetToken().Value, "->"):
			r.fail(path, entry.Key.GetToken(), fmt.Sprintf("unknown key %q%s", key, unquotedHint(path)))
		case !known:
			r.fail(path, entry.Key.GetToken(), unknownKey(key, p.keys()))
		default:
			seen[key] = true
			r.walk(entry.Value, strings.TrimPrefix(path+"."+key, "."), next, depth+1)
		}
	}
	// Merged keys (<<: *anchor) apply only if the mapping itself lacks them.
	for _, merged := range merges {
		if target, ok := r.unwrap(merged, path); !ok {
			continue
		} else if entries(target) == nil {
			r.fail(path, merged.GetToken(), "<< wants the alias of a mapping")
		} else {
			r.mapping(target, path, p, depth+1, seen)
		}
	}
}

func (r *reader) sequence(n *ast.SequenceNode, path string, p *place, depth int) {
	if !p.takesList() {
		r.fail(path, n.GetToken(), "expected "+p.want()+", found a list")
		return
	}
	var values []string
	for i, value := range n.Values {
		if p.item != nil {
			_ = r.put(nil, index(path, i), nil, false) // makes the element, whatever it contains
			r.walk(value, index(path, i), p.item, depth+1)
			continue
		}
		node, ok := r.unwrap(value, index(path, i))
		if !ok {
			return
		}
		text, ok := r.scalar(node, index(path, i))
		if !ok {
			return
		}
		values = append(values, text)
	}
	if p.item == nil {
		r.set(p.Setting, path, n, values, true)
	}
}

// unwrap follows anchors, aliases and tags to the node with the content.
func (r *reader) unwrap(node ast.Node, path string) (ast.Node, bool) {
	if r.nodes++; r.nodes > maxNodes {
		r.fail(path, nil, "the aliases of the file expand to too much")
		return nil, false
	}
	for range maxDepth {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			target, ok := r.anchors[n.Value.GetToken().Value]
			if !ok {
				r.fail(path, n.GetToken(), "the alias *"+n.Value.GetToken().Value+" has no anchor before it")
				return nil, false
			}
			node = target
		case *ast.TagNode:
			node = n.Value
		case nil:
			return nil, false
		default:
			return node, true
		}
	}
	r.fail(path, node.GetToken(), "an alias leads to itself")
	return nil, false
}

// scalar returns the text of a single value, with variables expanded.
func (r *reader) scalar(node ast.Node, path string) (string, bool) {
	var text string
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		r.fail(path, startOf(node), "expected a value, found a list or keys and values")
		return "", false
	case *ast.NullNode:
		r.fail(path, node.GetToken(), noValue)
		return "", false
	default: // numbers, booleans: as written
		text = node.GetToken().Value
	}
	if r.lookup == nil {
		return text, true
	}
	value, err := expand(text, r.lookup)
	if err != nil {
		r.reject(path, node.GetToken(), err)
		return "", false
	}
	return value, true
}

func (r *reader) reject(path string, at *token.Token, err error) {
	if item, ok := errors.AsType[*itemError](err); ok {
		path, err = index(path, item.index), item.err
	}
	r.fail(path, at, shown(err))
}

// fail records a mistake with its place, and shows the line unless it may contain a password.
func (r *reader) fail(path string, at *token.Token, message string) {
	o := r.origin(at)
	if strings.Contains(message, "\n") { // it includes the text
		o.excerpt = ""
	}
	r.problems = append(r.problems, Problem{Path: path, Place: o.place, Message: redactText(message) + o.excerpt})
}

var mayHoldSecret = regexp.MustCompile(`(?i)url|://|pass|secret|token|api.?key`)

func (r *reader) origin(at *token.Token) origin {
	if at == nil || at.Position == nil {
		return origin{place: r.name}
	}
	o := origin{place: fmt.Sprintf("%s:%d:%d", r.name, at.Position.Line, at.Position.Column)}
	if at.Position.Line < 1 || at.Position.Line > len(r.lines) {
		return o
	}
	line := strings.TrimRight(r.lines[at.Position.Line-1], "\r")
	runes, column := []rune(line), at.Position.Column-1
	if !mayHoldSecret.MatchString(line) && column >= 0 && column <= len(runes) {
		shown, indent := excerpt(line, len(string(runes[:column])))
		o.excerpt = fmt.Sprintf("\n    %s\n    %s^", shown, strings.Repeat(" ", indent))
	}
	return o
}

func startOf(node ast.Node) *token.Token {
	if list := entries(node); len(list) > 0 {
		return list[0].Key.GetToken()
	}
	return node.GetToken()
}

func entries(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return append([]*ast.MappingValueNode{}, n.Values...) // not nil: it is a mapping
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func unknownKey(key string, names []string) string {
	message := fmt.Sprintf("unknown key %q: ", key)
	if near := spelling.One(key, names); near != "" {
		return message + spelling.Question(strconv.Quote(near))
	}
	return message + "expected one of " + strings.Join(names, ", ")
}

func redactText(s string) string { return (*Redactor)(nil).Text(s) }
