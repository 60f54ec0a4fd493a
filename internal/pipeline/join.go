package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Join is a table whose rows contribute to the texts of a pipeline: the rows that reference a row, or the row that it
// references. It becomes a subquery of the text, so everyone who reads the text reads it.
type Join struct {
	Schema string `json:"schema"`
	Table  string `json:"table"`
	As     string `json:"as"` // name of its text, and of the table in expressions; unique in a pipeline
	On     []On   `json:"on"` // sorted by column
	Text   string `json:"text"`
	Joins  Joins  `json:"joins,omitempty"` // Text may name their texts

	// From the catalog:
	OID uint32 `json:"oid,omitempty"`
	// columns that matter: those of On, of Text, and of nested joins; nil: all
	Uses []string `json:"uses,omitempty"`
}

// On is an equality of a column of the joined table and a column of the row that it is joined to.
type On struct {
	Column string `json:"column"`
	Of     string `json:"of"`
	Type   string `json:"type,omitempty"`  // of Column, in the form of format_type
	Exact  bool   `json:"exact,omitempty"` // equal values of the two columns have the same text
}

// Joins are the joins of a pipeline, or of a joined table.
type Joins []Join

// MaxJoins is how many tables a pipeline may join, and joinDepth how deeply they may be nested.
const (
	MaxJoins  = 8
	joinDepth = 2
)

// beside is the alias for the texts of all joins in an expression.
const beside = `"embedsidecar joined"`

// String returns the joins as configured, "" if there are none: it identifies a definition.
func (j Joins) String() string {
	if len(j) == 0 {
		return ""
	}
	body, err := json.Marshal(j.written())
	if err != nil {
		panic(err) // only strings
	}
	return string(body)
}

// written removes the information from the catalog.
func (j Joins) written() Joins {
	list := slices.Clone(j)
	for i := range list {
		list[i].OID, list[i].Uses, list[i].Joins = 0, nil, list[i].Joins.written()
		list[i].On = slices.Clone(list[i].On)
		for n := range list[i].On {
			list[i].On[n].Type, list[i].On[n].Exact = "", false
		}
	}
	return list
}

// Clone returns a deep copy.
func (j Joins) Clone() Joins {
	list := slices.Clone(j)
	for i := range list {
		list[i].On, list[i].Uses, list[i].Joins = slices.Clone(list[i].On), slices.Clone(list[i].Uses), list[i].Joins.Clone()
	}
	return list
}

// In returns joins with a default schema.
func (j Joins) In(schema string) Joins {
	list := j.Clone()
	for i := range list {
		if list[i].Joins = list[i].Joins.In(schema); list[i].Schema == "" {
			list[i].Schema = schema
		}
	}
	return list
}

// Same reports whether two are equal, including the information from the catalog.
func (j Joins) Same(other Joins) bool {
	a, errA := json.Marshal(j)
	b, errB := json.Marshal(other)
	return errors.Join(errA, errB) == nil && (len(j) == 0 && len(other) == 0 || string(a) == string(b))
}

// Names returns the names of the texts.
func (j Joins) Names() []string {
	return lists.Map(j, func(v Join) string { return v.As })
}

// Mistake returns what is wrong with joins as written, or "".
func (j Joins) Mistake(text string) string {
	seen := map[string]bool{}
	return j.mistake("joins", text, 1, seen)
}

func (j Joins) mistake(path, text string, depth int, seen map[string]bool) string {
	for i := range j {
		join, at := &j[i], path+"["+strconv.Itoa(i)+"]"
		switch {
		case depth > joinDepth:
			return fmt.Sprintf("%s: joins go %d levels deep", path, joinDepth)
		case join.As == "r":
			return at + ": the row itself is called r: give the join another name by as"
		case seen[join.As]:
			return fmt.Sprintf("%s: the name %q is that of another join: give this one another name by as", at, join.As)
		case text != "" && !strings.Contains(text, join.As):
			return fmt.Sprintf("%s: the text does not name %q: add it to the text, or remove the join", at, join.As)
		}
		if seen[join.As] = true; len(seen) > MaxJoins {
			return fmt.Sprintf("%s: a pipeline joins at most %d tables", at, MaxJoins)
		}
		if problem := join.Joins.mistake(at+".joins", join.Text, depth+1, seen); problem != "" {
			return problem
		}
	}
	return ""
}

// expression returns the SQL of the join's text for the row called parent, or NULL without rows.
func (j *Join) expression(parent string) string {
	from := "ONLY " + quote(j.Schema) + "." + quote(j.Table) + " AS " + quote(j.As)
	if len(j.Joins) > 0 {
		from += " CROSS JOIN LATERAL (SELECT " + j.Joins.columns(quote(j.As)) + " OFFSET 0) AS " + beside
	}
	return "(SELECT (" + Enclose(j.Text) + ")::text FROM " + from + " WHERE " + j.match(parent) + ")"
}

// match compares the columns of the joined row with those of the row called parent.
func (j *Join) match(parent string) string {
	parts := lists.Map(j.On, func(on On) string {
		return quote(j.As) + "." + quote(on.Column) + " OPERATOR(pg_catalog.=) " + parent + "." + quote(on.Of)
	})
	return strings.Join(parts, " AND ")
}

func (j Joins) columns(parent string) string {
	parts := lists.Map(j, func(v Join) string { return v.expression(parent) + " AS " + quote(v.As) })
	return strings.Join(parts, ", ")
}

// JoinedTexts returns the SQL of the text of each join for the row r.
func (p *Pipeline) JoinedTexts() []string {
	return lists.Map(p.Joins, func(v Join) string { return v.expression("r") })
}

// JoinedMeets returns for each join the SQL that a row of it, or one joined to that, meets a condition.
func (p *Pipeline) JoinedMeets(condition func(row string) string) []string {
	return lists.Map(p.Joins, func(v Join) string { return v.meets("r", condition) })
}

func (j *Join) meets(parent string, condition func(row string) string) string {
	meets := []string{condition(quote(j.As))}
	for i := range j.Joins {
		meets = append(meets, j.Joins[i].meets(quote(j.As), condition))
	}
	return "EXISTS (SELECT FROM ONLY " + quote(j.Schema) + "." + quote(j.Table) + " AS " + quote(j.As) + " WHERE " +
		j.match(parent) + " AND (" + strings.Join(meets, " OR ") + "))"
}

// JoinedNames returns a FROM item with the names of the joins' texts, for parsing an expression.
func JoinedNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	parts := lists.Map(names, func(name string) string { return "NULL::text AS " + quote(name) })
	return " CROSS JOIN (SELECT " + strings.Join(parts, ", ") + ") AS " + beside
}

// Link is a joined table with those on the way to it: the first is joined to the row, the last is the table itself.
type Link []*Join

// Table returns the joined table at the end of a link.
func (l Link) Table() *Join { return l[len(l)-1] }

// Links returns a link for each joined table. Changes refer to a link by its index, which is fixed for a definition of
// the pipeline.
func (p *Pipeline) Links() (links []Link) {
	var add func(before Link, joins Joins)
	add = func(before Link, joins Joins) {
		for i := range joins {
			link := append(slices.Clone(before), &joins[i])
			links = append(links, link)
			add(link, joins[i].Joins)
		}
	}
	add(nil, p.Joins)
	return links
}

// Tables returns the tables whose changes matter to the pipeline: its source and the joined ones.
func (p *Pipeline) Tables() []uint32 {
	return append([]uint32{p.OID}, lists.Map(p.Links(), func(l Link) uint32 { return l.Table().OID })...)
}

// owners returns the condition that a joined row with these values of On contributes to the text of the row called row.
func (l Link) owners(row string, values []string) string {
	var left, right []string
	for i, on := range l[0].On {
		left = append(left, row+"."+quote(on.Of))
		if len(l) == 1 {
			right = append(right, left[i]+" OPERATOR(pg_catalog.=) "+values[i]+"::"+on.Type)
		} else {
			right = append(right, quote(l[0].As)+"."+quote(on.Column))
		}
	}
	if len(l) == 1 {
		return "(" + strings.Join(right, " AND ") + ")"
	}
	return "((" + strings.Join(left, ", ") + ") IN (SELECT " + strings.Join(right, ", ") + " FROM ONLY " +
		quote(l[0].Schema) + "." + quote(l[0].Table) + " AS " + quote(l[0].As) + " WHERE " +
		l[1:].owners(quote(l[0].As), values) + "))"
}

// OwnersOf is owners for the row r. Values are SQL expressions of type text, one for each column of On.
func (l Link) OwnersOf(values []string) string { return l.owners("r", values) }

// KeyOf returns the key of the only row that joined rows with these values of On can belong to, if the values are those
// of its key.
func (p *Pipeline) KeyOf(l Link, values []string) (key string, ok bool) {
	if len(l) != 1 || len(l[0].On) != len(p.Key) {
		return "", false
	}
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		at := slices.IndexFunc(l[0].On, func(on On) bool { return on.Of == k.Name && on.Exact })
		if at < 0 {
			return "", false
		}
		parts[i] = values[at]
	}
	return JoinKey(parts), true
}

// Owner identifies rows by the values of On in a joined row: Join is the index of the link plus 1.
type Owner struct {
	Join   int
	Values string // as JoinKey writes them, in the order of On
}

// String formats it for a scan request.
func (o Owner) String() string { return strconv.Itoa(o.Join) + ":" + o.Values }

// OwnersCondition returns the condition that the row r has one of these owners. It returns false if one does not match
// this definition: any row may then be meant.
func (p *Pipeline) OwnersCondition(names []string) (condition string, ok bool) {
	links := p.Links()
	parts := make([]string, len(names))
	for i, name := range names {
		number, values, _ := strings.Cut(name, ":")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > len(links) {
			return "", false
		}
		list, err := SplitKey(values, len(links[n-1].Table().On))
		if err != nil {
			return "", false
		}
		for j, v := range list {
			list[j] = literal(v)
		}
		parts[i] = links[n-1].OwnersOf(list)
	}
	return strings.Join(parts, " OR "), len(parts) > 0
}

// literal writes a text constant for any value of standard_conforming_strings.
func literal(s string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}
