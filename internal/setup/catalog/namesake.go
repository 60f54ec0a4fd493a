package catalog

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// aCall is a function or operator that a rule's tree calls by name.
type aCall struct {
	function uint32
	operator uint32 // the operator by which it is called; 0: none
	args     int
	loose    bool // an argument is implicitly cast, so another function of the name may match better
}

var (
	named = regexp.MustCompile(`^\{(?:FUNCEXPR|OPEXPR|DISTINCTEXPR|NULLIFEXPR|SCALARARRAYOPEXPR|AGGREF) ` +
		`.*?:(?:funcid|opfuncid|aggfnoid) (\d+)`)
	isCast   = regexp.MustCompile(`:funcformat [12]\b`)
	opno     = regexp.MustCompile(`^\{\w+ :opno (\d+)`)
	implicit = regexp.MustCompile(`:\w+format 2\b`)
	// a literal of one of the types that literals usually have: string, number or boolean
	plain = regexp.MustCompile(`:consttype (?:16|20|23|25|1700)\b`)
)

// callsIn returns the calls by name in a rule's tree.
func callsIn(tree string) (calls []aCall) {
	for at := range len(tree) {
		if tree[at] != '{' || at > 0 && tree[at-1] == '\\' {
			continue
		}
		name := named.FindStringSubmatch(tree[at:min(len(tree), at+200)])
		if name == nil {
			continue
		}
		own, inner := parts(tree[at:])
		if isCast.MatchString(own) { // a cast is found by its types, not by name
			continue
		}
		loose := slices.ContainsFunc(inner, func(arg string) bool {
			own, inside := parts(arg)
			if strings.HasPrefix(own, "{TARGETENTRY ") { // an argument of an aggregate
				own, _ = parts(inside[0])
			}
			return implicit.MatchString(own) || strings.HasPrefix(own, "{CONST ") && !plain.MatchString(own)
		})
		calls = append(calls, aCall{numberIn(name), numberIn(opno.FindStringSubmatch(own)), len(inner), loose})
	}
	return calls
}

// numberIn returns the number that a pattern matched, or 0.
func numberIn(found []string) uint32 {
	if found == nil {
		return 0
	}
	n, err := strconv.ParseUint(found[1], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// parts returns a node's own text and its direct children.
func parts(node string) (own string, inner []string) {
	var text strings.Builder
	depth, begin := 0, 0
	for at := 0; at < len(node); at++ {
		switch node[at] {
		case '\\':
			at++ // the escaped character is part of a name
			continue
		case '{':
			if depth++; depth == 2 { //nolint:mnd // the node itself is the first
				begin = at
			}
		case '}':
			if depth--; depth == 1 {
				inner = append(inner, node[begin:at+1])
			}
			if depth == 0 {
				return text.String(), inner
			}
			continue
		}
		if depth == 1 {
			text.WriteByte(node[at])
		}
	}
	return text.String(), inner
}

// trusted returns *ConfigError when an untrusted role owns a function that an expression calls, or can create one that
// would be called instead: every statement looks up the names again.
func trusted(ctx context.Context, tx pgx.Tx, t *Table, word, tree string) error {
	args := pgx.StrictNamedArgs{"table": t.OID, "trusted": database.Trusted(tx.Conn())}
	calls := callsIn(tree)
	for _, f := range functionsIn(tree) { // casts, too
		calls = append(calls, aCall{function: f, args: -1})
	}
	args["functions"] = lists.Map(calls, func(c aCall) uint32 { return c.function })
	args["counts"] = lists.Map(calls, func(c aCall) int { return c.args })
	args["loose"] = lists.Map(calls, func(c aCall) bool { return c.loose })
	args["operators"] = lists.Map(calls, func(c aCall) uint32 { return c.operator })
	type called struct {
		database.Stranger
		Hint string
	}
	found, err := database.Collect(ctx, tx, "functions_of_strangers", pgx.RowToStructByName[called], args)
	if err != nil || len(found) == 0 {
		return wrap.Errorf(err, "look up the owners of functions")
	}
	f := found[0]
	action := fmt.Sprintf("evaluate the %s: it calls %s, %s %s", word, f.Thing, f.Problem, cmp.Or(f.Owner, "PUBLIC"))
	return notSafe(tx, f.Owner, action, strings.FieldsFunc(f.Hint, func(r rune) bool { return r == '\n' })...)
}

// LostFunctions returns *ConfigError if a function that a stored pipeline's expressions call is no longer trusted: its
// owner, or that of the tables, may have lost the trust since.
func LostFunctions(ctx context.Context, tx pgx.Tx, tables []uint32, names []string) error {
	if len(names) == 0 {
		return nil
	}
	found, err := database.Collect(ctx, tx, "lost_functions", pgx.RowToStructByName[database.Stranger],
		pgx.StrictNamedArgs{"functions": names, "tables": tables, "trusted": database.Trusted(tx.Conn())})
	if err != nil || len(found) == 0 {
		return wrap.Errorf(err, "look up the owners of functions")
	}
	f := found[0]
	return notSafe(tx, f.Owner, fmt.Sprintf("evaluate its expressions any more: they call %s, %s %s", f.Thing, f.Problem,
		f.Owner), "give the function and its schema to a role that is trusted")
}

// strangersNamed returns *ConfigError if an expression, its rule (0: not parsed yet) or its functions use a type whose
// owner is neither trusted nor the owner of the table.
func strangersNamed(ctx context.Context, tx pgx.Tx, t *Table, word, expression string, rule uint32, functions []uint32,
) error {
	schemas, names := typesNamed(cmp.Or(t.As, "r"), expression)
	if rule == 0 && len(names) == 0 {
		return nil
	}
	found, err := database.Collect(ctx, tx, "types_in_expression", pgx.RowToStructByName[database.Stranger],
		pgx.StrictNamedArgs{
			"schemas": schemas, "names": names, "rule": rule, "functions": append([]uint32{}, functions...),
			"table": t.OID, "trusted": database.Trusted(tx.Conn()),
		})
	if err != nil || len(found) == 0 {
		return wrap.Errorf(err, "look up the owners of types")
	}
	f := found[0]
	return notSafe(tx, f.Owner, fmt.Sprintf("evaluate the %s: it uses the type %s, %s role %q", word, f.Thing, f.Problem,
		f.Owner), "use a type of PostgreSQL or of the table's owner")
}
