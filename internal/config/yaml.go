package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
)

// maxFile keeps a wrong path, to a dump or a device, from filling the memory.
const maxFile = 4 << 20

// maxDepth is deeper than any file we understand; it ends aliases that contain themselves.
const maxDepth = 16

// reader walks over a YAML file along a schema. It goes on after a mistake, so that one run finds them all.
type reader struct {
	name     string // of the file
	lines    []string
	lookup   func(string) (string, bool)
	anchors  map[string]ast.Node
	problems []Problem
	origins  map[string]string
}

// readYAML puts what a file says where its schema wants it.
func readYAML(name string, data []byte, root *schema, lookup func(string) (string, bool)) *reader {
	r := &reader{
		name: name, lookup: lookup, anchors: map[string]ast.Node{}, origins: map[string]string{},
		lines: strings.Split(string(data), "\n"),
	}
	switch {
	case len(data) > maxFile:
		r.problems = []Problem{{Place: name, Message: fmt.Sprintf("the file is larger than %s", formatSize(maxFile))}}
		return r
	case invalidAt(string(data)) >= 0:
		line := 1 + bytes.Count(data[:invalidAt(string(data))], []byte("\n"))
		r.problems = []Problem{{Place: fmt.Sprintf("%s:%d", name, line), Message: "the file is not UTF-8"}}
		return r
	}
	file, err := parse(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		r.syntax(err)
		return r
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			r.fail("", doc.Body.GetToken(), "a second document begins here: the file holds only one")
			return r
		}
		body = doc.Body
	}
	if body != nil {
		ast.Walk(anchors(r.anchors), body)
		r.walk(body, "", root, 0)
	}
	return r
}

// anchors collects what aliases may name.
type anchors map[string]ast.Node

// Visit makes anchors a visitor of nodes.
func (a anchors) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.AnchorNode); ok {
		a[n.Name.GetToken().Value] = n.Value
	}
	return a
}

// parse is the parser behind a border: it has never panicked on our fuzzing, and a file of a user must not be the
// first.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read as YAML (%v)", p)
		}
	}()
	return parser.ParseBytes(data, 0)
}

var flowVariable = regexp.MustCompile(`[{\[,:]\s*[^"'\s]*\$\{`)

func (r *reader) syntax(err error) {
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		r.problems = append(r.problems, Problem{Place: r.name, Message: redactText(err.Error())})
		return
	}
	message := "the file is no valid YAML: " + located.GetMessage()
	if n := located.GetToken().Position.Line; n > 0 && n <= len(r.lines) && flowVariable.MatchString(r.lines[n-1]) &&
		strings.ContainsAny(r.lines[n-1], "{[") {
		message += "; inside { } and [ ] a variable needs quotes: \"${NAME}\""
	}
	r.fail("", located.GetToken(), message)
}

// walk reads one node.
func (r *reader) walk(node ast.Node, path string, s *schema, depth int) {
	if depth > maxDepth {
		r.fail(path, node.GetToken(), "the file is nested too deeply, or an alias contains itself")
		return
	}
	node, ok := r.unwrap(node, path)
	if !ok {
		return
	}
	switch n := node.(type) {
	case *ast.NullNode:
		if s.fields == nil && s.list == nil && s.item == nil {
			r.fail(path, n.GetToken(), "there is no value: give one, or remove the line")
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		if s.fields == nil {
			r.fail(path, startOf(node), "expected "+s.want()+", found keys and values"+unquotedHint(path))
			return
		}
		r.origins[path] = r.place(startOf(node))
		r.mapping(node, path, s, depth, map[string]bool{})
	case *ast.SequenceNode:
		r.sequence(n, path, s, depth)
	default:
		if s.value == nil {
			r.fail(path, node.GetToken(), "expected "+s.want()+", found a single value"+s.keys())
			return
		}
		if value, ok := r.scalar(node, path); ok {
			r.origins[path] = r.place(node.GetToken())
			if err := s.value(value); err != nil {
				r.reject(path, node.GetToken(), err)
			}
		}
	}
}

func unquotedHint(path string) string {
	if strings.HasPrefix(path, "pipelines[") {
		return "; a pipeline in one line needs quotes around it"
	}
	return ""
}

// mapping reads keys and values; seen keeps the keys that were there already. (The parser refuses a key twice.)
func (r *reader) mapping(node ast.Node, path string, s *schema, depth int, seen map[string]bool) {
	if depth > maxDepth {
		r.fail(path, node.GetToken(), "the file is nested too deeply, or an alias contains itself")
		return
	}
	var merges []ast.Node
	for _, entry := range entries(node) {
		if entry.Key.IsMergeKey() {
			merges = append(merges, entry.Value)
			continue
		}
		key := entry.Key.GetToken().Value
		below := key
		if path != "" {
			below = path + "." + key
		}
		next, known := s.fields[key]
		switch {
		case path == "" && strings.HasPrefix(key, "x-"): // a place for anchors and for other programs
		case !known && strings.Contains(entry.Value.GetToken().Value, "->"):
			r.fail(path, entry.Key.GetToken(), fmt.Sprintf("unknown key %q%s", key, unquotedHint(path)))
		case !known:
			r.fail(path, entry.Key.GetToken(), unknownKey(key, s))
		default:
			seen[key] = true
			r.walk(entry.Value, below, next, depth+1)
		}
	}
	// What is merged in (<<: *anchor) counts only where the mapping itself says nothing.
	for _, merged := range merges {
		target, ok := r.unwrap(merged, path)
		if !ok {
			continue
		}
		switch target.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			r.mapping(without(target, seen), path, s, depth+1, seen)
		default:
			r.fail(path, merged.GetToken(), "<< wants the alias of a mapping")
		}
	}
}

func (r *reader) sequence(n *ast.SequenceNode, path string, s *schema, depth int) {
	switch {
	case s.item != nil:
		for i, value := range n.Values {
			r.walk(value, index(path, i), s.item(i), depth+1)
		}
	case s.list != nil:
		var values []string
		for i, value := range n.Values {
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
		r.origins[path] = r.place(n.GetToken())
		if err := s.list(values); err != nil {
			r.reject(path, n.GetToken(), err)
		}
	default:
		r.fail(path, n.GetToken(), "expected "+s.want()+", found a list")
	}
}

// unwrap follows anchors, aliases and tags to the node that holds the content.
func (r *reader) unwrap(node ast.Node, path string) (ast.Node, bool) {
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

// scalar returns the text of a single value, with variables put in.
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
		r.fail(path, node.GetToken(), "there is no value: give one, or remove the line")
		return "", false
	default: // numbers, booleans: as they were written
		text = node.GetToken().Value
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

// fail notes a mistake with its place, and shows the line unless it may hold a password.
func (r *reader) fail(path string, at *token.Token, message string) {
	message = redactText(message)
	if strings.Count(message, "\n") == 0 {
		message += r.caret(at)
	}
	r.problems = append(r.problems, Problem{Path: path, Place: r.place(at), Message: message})
}

func (r *reader) place(at *token.Token) string {
	if at == nil || at.Position == nil {
		return r.name
	}
	return fmt.Sprintf("%s:%d:%d", r.name, at.Position.Line, at.Position.Column)
}

var mayHoldSecret = regexp.MustCompile(`(?i)url|://|pass|secret|token|api.?key`)

func (r *reader) caret(at *token.Token) string {
	if at == nil || at.Position == nil || at.Position.Line < 1 || at.Position.Line > len(r.lines) {
		return ""
	}
	line := strings.TrimRight(r.lines[at.Position.Line-1], "\r")
	runes, column := []rune(line), at.Position.Column-1
	if mayHoldSecret.MatchString(line) || column < 0 || column > len(runes) {
		return ""
	}
	shown, indent := excerpt(line, len(string(runes[:column])))
	return fmt.Sprintf("\n    %s\n    %s^", shown, strings.Repeat(" ", indent))
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
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// without returns a mapping with the entries whose keys are not taken.
func without(node ast.Node, taken map[string]bool) ast.Node {
	rest := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: node.GetToken()}
	for _, entry := range entries(node) {
		if !taken[entry.Key.GetToken().Value] {
			rest.Values = append(rest.Values, entry)
		}
	}
	return rest
}

func unknownKey(key string, s *schema) string {
	names := slices.Sorted(maps.Keys(s.fields))
	message := fmt.Sprintf("unknown key %q", key)
	if near := spelling.One(key, names); near != "" {
		return message + ": " + spelling.Question(strconv.Quote(near))
	}
	return message + ": expected one of " + strings.Join(names, ", ")
}

func redactText(s string) string { return (*Redactor)(nil).Text(s) }
