package pipeline

import (
	"errors"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// A row's key is written as one string: the value of its column as Postgres prints it. Several values are joined by
// '|', with '|' and '\' escaped by '\'.

// MaxKey is the longest written key, in bytes, that fits into an index entry of the queue. A row with a longer one is
// skipped and counted. Such keys are rare, because the user's own index must hold them too.
const MaxKey = 2500

// JoinKey writes the values of a key as one string.
func JoinKey(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte('|')
		}
		for j := range len(v) {
			if v[j] == '|' || v[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(v[j])
		}
	}
	return b.String()
}

// SplitKey is the inverse of JoinKey for a key of n columns.
func SplitKey(key string, n int) ([]string, error) {
	if n == 1 {
		return []string{key}, nil
	}
	values := make([]string, 0, n)
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch key[i] {
		case '\\':
			i++
			if i == len(key) {
				return nil, errors.New("split key: it ends with an escape")
			}
			b.WriteByte(key[i])
		case '|':
			values = append(values, b.String())
			b.Reset()
		default:
			b.WriteByte(key[i])
		}
	}
	values = append(values, b.String())
	if len(values) != n {
		return nil, errors.New("split key: another number of columns than the pipeline's key has")
	}
	return values, nil
}

// KeyExpression returns the SQL that writes the key of the row called alias as JoinKey does. format('%s') uses the
// type's output function; a cast to text does not (boolean, char(n)). The collation is that of our tables: PostgreSQL
// could not compare keys with the column's collation, and a nondeterministic one supports no substring search.
func (p *Pipeline) KeyExpression(alias string) string {
	parts := lists.Map(p.Key, func(k KeyColumn) string {
		return "format('%s', " + alias + "." + quote(k.Name) + `) COLLATE pg_catalog."C"`
	})
	if len(parts) == 1 {
		return "(" + parts[0] + ")"
	}
	for i, part := range parts {
		parts[i] = `replace(replace(` + part + `, '\', '\\'), '|', '\|')`
	}
	return strings.Join(parts, " || '|' || ")
}

// MatchKey returns the SQL that compares the key of the row called alias with text expressions, one per key column. It
// depends on no search_path: casts, collations and operators are schema-qualified.
func (p *Pipeline) MatchKey(alias string, texts []string) string {
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		parts[i] = alias + "." + quote(k.Name) + " " + k.Equal + " " + k.Value(texts[i])
	}
	return strings.Join(parts, " AND ")
}

// SameKey returns the SQL that the rows called a and b have the same key, in columns of the same types.
func (p *Pipeline) SameKey(a, b string) string {
	parts := lists.Map(p.Key, func(k KeyColumn) string {
		return a + "." + quote(k.Name) + " " + k.Equal + " " + b + "." + quote(k.Name)
	})
	return strings.Join(parts, " AND ")
}

// Among returns the SQL that the column of a row has one of the values of a parameter, as AmongOf gives them. It lets
// the server prune partitions early: planning and locking all of them takes longer than anything else.
func (k KeyColumn) Among(column, param string) string {
	return column + " " + k.Equal + " ANY (" + param + "::" + k.Type + "[])"
}

// AmongOf returns texts as the parameter of Among.
func (KeyColumn) AmongOf(texts []string) string {
	return arrayOf(slices.Compact(slices.Sorted(slices.Values(texts))))
}

// Value returns the SQL that converts an expression, a text or a value of the type, to the key column's type.
func (k KeyColumn) Value(text string) string {
	return k.collated("CAST(" + text + " AS " + k.Type + ")")
}

// Param returns the SQL that converts a parameter to the key column's type.
func (k KeyColumn) Param(param string) string {
	return k.collated("CAST(" + k.Typed(param) + " AS " + k.Type + ")")
}

// JSON returns the SQL of a value of the key column for jsonb_build_object. That function looks for a cast to JSON,
// which for a user's type would be the user's code.
func (k KeyColumn) JSON(value string) string {
	if strings.Contains(k.Type, ".") {
		return "pg_catalog.format('%s', " + value + ")"
	}
	return value
}

func (k KeyColumn) collated(v string) string {
	if k.Collation != "" {
		v = "(" + v + " COLLATE " + k.Collation + ")"
	}
	return v
}

// Typed returns the SQL of a parameter with one value of the type, given as text.
func (k KeyColumn) Typed(param string) string {
	if k.ByInput {
		return param + "::" + k.Type
	}
	return param + "::text"
}

// TypedList returns the SQL of a parameter with a list of values of the type, as ListOf gives them.
func (k KeyColumn) TypedList(param string) string { return k.Typed(param) + "[]" }

// ListOf returns texts as the parameter of TypedList.
func (k KeyColumn) ListOf(texts []string) any {
	if !k.ByInput {
		return texts
	}
	return arrayOf(texts)
}

// arrayOf formats an array for PostgreSQL.
func arrayOf(texts []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := lists.Map(texts, func(text string) string { return `"` + escape.Replace(text) + `"` })
	return "{" + strings.Join(quoted, ",") + "}"
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
