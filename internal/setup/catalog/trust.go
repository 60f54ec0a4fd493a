package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Which owners are trusted. Code attached to a table (a trigger, a default, a rule, an index expression) runs with the
// privileges of everyone who uses the table, so its owner can do everything that our role can. Connections check the
// schema embedsidecar when they are made (package database). This code checks it again, because it may be newer,
// together with the tables that vectors are written to.

// UntrustedOwners returns *ConfigError when an untrusted role owns one of some relations (their quoted names) or
// functions (SCHEMA.NAME), or its schema: its code would run when they are read or called.
func UntrustedOwners(ctx context.Context, tx pgx.Tx, relations, functions []string) error {
	found, err := database.Collect(ctx, tx, "untrusted_owners", pgx.RowToStructByName[database.Stranger],
		pgx.StrictNamedArgs{
			"relations": append([]string{}, relations...), "functions": append([]string{}, functions...),
			"trusted": database.Trusted(tx.Conn()),
		})
	return strange(tx, found, wrap.Errorf(err, "look for owners"))
}

// UntrustedWriters returns *ConfigError when an untrusted role may write to some tables (their quoted names), whose
// rows are about to be acted on.
func UntrustedWriters(ctx context.Context, tx pgx.Tx, tables ...string) error {
	found, err := database.Collect(ctx, tx, "untrusted_writers", pgx.RowToStructByName[database.Stranger],
		pgx.StrictNamedArgs{"tables": tables, "trusted": database.Trusted(tx.Conn())})
	return strange(tx, found, wrap.Errorf(err, "look for writers"))
}

// UntrustedMakers returns *ConfigError when an untrusted role may create functions in a schema that is about to be in
// the search_path.
func UntrustedMakers(ctx context.Context, tx pgx.Tx, schema string) error {
	found, err := database.Collect(ctx, tx, "untrusted_makers", pgx.RowToStructByName[database.Stranger],
		pgx.StrictNamedArgs{"schemas": []string{schema}, "trusted": database.Trusted(tx.Conn())})
	if err != nil || len(found) == 0 {
		return wrap.Errorf(err, "look for roles that may create in schema %q", schema)
	}
	text, owners := database.InWords(found)
	return notSafe(tx, owners[0], "use: "+text, "let nobody else create there: REVOKE CREATE ON SCHEMA "+
		database.Quote(schema)+" FROM PUBLIC, "+database.Quote(owners[0])+";")
}

// strangersType is a type in a column of a table whose owner is not trusted, or for which an untrusted role may make
// operators.
type strangersType struct {
	Table                     uint32
	Column, Type, Kind, Owner string
	Whole                     bool // the type of the column itself, not a part of it
	Casts                     bool // it has casts that run an untrusted role's code
}

// isDomain reports whether the column itself is of the domain. Its values are then those of the base type.
func (s strangersType) isDomain() bool { return s.Kind == "d" && s.Whole }

// domains returns the columns of untrusted roles' domains.
func (t *Table) domains() (columns []string) {
	for _, s := range t.foreign {
		if s.isDomain() {
			columns = append(columns, s.Column)
		}
	}
	return columns
}

// examine finds the owners of the tables and of the types in them.
func examine(ctx context.Context, tx pgx.Tx, tables ...*Table) error {
	const ofUsers = 16384
	var all, typed []uint32
	for _, t := range tables {
		all = append(all, t.OID)
		if slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Type >= ofUsers }) {
			typed = append(typed, t.OID)
		}
	}
	marks, err := marksOf(ctx, tx, all) // first: writers notice later changes
	if err != nil {
		return err
	}
	lent, err := ofOthers(ctx, tx, all)
	if err != nil {
		return err
	}
	foreign := map[uint32][]strangersType{}
	if len(typed) > 0 {
		found, err := database.Collect(ctx, tx, "types_of_strangers", pgx.RowToStructByName[strangersType],
			pgx.StrictNamedArgs{"tables": typed, "trusted": database.Trusted(tx.Conn())})
		if err != nil {
			return fmt.Errorf("look up types of tables: %w", err)
		}
		for _, s := range found {
			foreign[s.Table] = append(foreign[s.Table], s)
		}
	}
	for _, t := range tables {
		t.examined, t.lent, t.foreign = true, lent[t.OID], foreign[t.OID]
		t.TriggerMark, t.OwnerMark = marks[t.OID].triggers, marks[t.OID].owners
	}
	return nil
}

// Unruly returns why a superuser should not use the table, or nil, as the function of that name does.
func (t *Table) Unruly(ctx context.Context, tx pgx.Tx) error {
	if !t.examined {
		if err := examine(ctx, tx, t); err != nil {
			return err
		}
	}
	return t.unruly
}

// StrangersTypes returns the columns of the table whose types have untrusted owners, and sets ByInput on those of the
// key. It returns *ConfigError when such an owner's code could run in statements over the table. Values of a key are
// read by input functions: that of an enum is built in, but those of composed types run the constraints of domains.
// Users' expressions look for casts. key holds the key columns that statements read.
func (t *Table) StrangersTypes(ctx context.Context, tx pgx.Tx, key []pipeline.KeyColumn) (columns []string, err error) {
	if !t.examined {
		if err := examine(ctx, tx, t); err != nil {
			return nil, err
		}
	}
	names := pipeline.KeyNames(key)
	for _, s := range t.foreign {
		if s.isDomain() { // counts in expressions alone
			continue
		}
		if s.Kind == operators {
			if slices.Contains(names, s.Column) {
				return nil, t.comparable(tx, s)
			}
			continue
		}
		problem := ""
		switch {
		case s.Casts:
			problem = "has casts that run functions"
		case slices.Contains(names, s.Column) && (!s.Whole || s.Kind != "e"):
			problem = "is part of the key, and reading it may run functions"
		}
		if problem != "" {
			return nil, notSafe(tx, s.Owner, fmt.Sprintf("use column %q of %s: its type %s, which belongs to role %q, %s",
				s.Column, t.Quoted(), s.Type, s.Owner, problem), RunAs(s.Owner))
		}
		columns = append(columns, s.Column)
		if at := slices.Index(names, s.Column); at >= 0 {
			key[at].ByInput = true
		}
	}
	return columns, nil
}

// operators is the Kind of an entry that is not a type: a schema with the operators that compare a domain's values, in
// which an untrusted role may make others.
const operators = "operator"

// comparable is the error of a key column whose values could be compared with an untrusted role's operator.
func (t *Table) comparable(tx pgx.Tx, s strangersType) error {
	whom := "PUBLIC"
	if s.Owner != "" {
		whom = database.Quote(s.Owner)
	}
	return notSafe(tx, s.Owner, fmt.Sprintf("compare column %q of %s: it is of a domain, for which %s could make an "+
		"operator in schema %s", s.Column, t.Quoted(), whom, s.Type),
		fmt.Sprintf("REVOKE CREATE ON SCHEMA %s FROM %s;", s.Type, whom),
		"or give the column the type that the domain is made of")
}

var (
	escapes = regexp.MustCompile(`(?i)\bU&"`)
	// arrays matches what makes an array of a column's values. The server reads a literal beside it as one of these.
	arrays = regexp.MustCompile(`(?i)\barray|\bwidth_bucket\b|\bpercentile_disc\b`)
)

// MeantByStrangers returns *ConfigError when an expression names one of these columns, which StrangersTypes returned.
// Each statement looks up what it calls with such a value, so the type's owner could add a cast later. A column of an
// untrusted role's domain counts where an array is made of it, unless it is cast: constraints of the domain would run.
func (t *Table) MeantByStrangers(tx pgx.Tx, columns []string, expressions ...string) error {
	for _, e := range expressions {
		if column := mentioned(columns, e, ""); column != "" {
			return t.meant(tx, column, "the owner of its type could make a cast, or a constraint, that the expression calls")
		}
		if !arrays.MatchString(e) && !escapes.MatchString(e) {
			continue
		}
		if column := mentioned(t.domains(), e, "::"); column != "" {
			return t.meant(tx, column, "it is of a domain, whose constraints would run where an array is made of its values",
				"cast it to the type that the domain is made of, as in title::text")
		}
	}
	return nil
}

func (t *Table) meant(tx pgx.Tx, column, why string, hints ...string) error {
	return notSafe(tx, "", fmt.Sprintf("evaluate an expression over column %q of %s: %s", column, t.Quoted(), why),
		append(hints, "name the column in columns: instead, which needs no cast",
			"or trust the owner of the type with all privileges of the role: --trust-owner")...)
}

// mentioned returns the first of some columns that an expression seems to name, or "". Names followed by except
// do not count.
func mentioned(columns []string, expression, except string) string {
	for _, column := range columns {
		if escapes.MatchString(expression) {
			return column
		}
		name := regexp.MustCompile(`(?i)(?:^|[^\w$])` + regexp.QuoteMeta(strings.ReplaceAll(column, `"`, `""`)) +
			`("?\s*)(?:[^\w$]|$)`)
		for rest := expression; ; {
			at := name.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			if except == "" || !strings.HasPrefix(rest[at[3]:], except) {
				return column
			}
			rest = rest[at[3]:]
		}
	}
	return ""
}

// UnrulyIntoColumn returns why a superuser should not write to a column of the table, or nil: an untrusted role has
// made triggers on it, or can. They run with the writer's privileges.
func (t *Table) UnrulyIntoColumn(ctx context.Context, tx pgx.Tx) error {
	if err := t.Unruly(ctx, tx); err != nil {
		return err
	}
	return t.fired
}

// Unruly returns why a superuser should not use a table, or nil. The reason is that an untrusted role owns the table, a
// partition or parent of it, or a schema of these or of pgvector. Triggers, index expressions, and a view or type that
// the owner puts in place of ours would run with a superuser's privileges. Other roles lend only their own.
func Unruly(ctx context.Context, tx pgx.Tx, table uint32) error {
	all, err := ofOthers(ctx, tx, []uint32{table})
	if err != nil {
		return err
	}
	return all[table].unruly
}

// lent holds why a superuser should not use a table, and why it should not write to it; nil: no reason.
type lent struct{ unruly, fired error }

// marks are pipeline.TriggersOf a table, if the session is a superuser's, and pipeline.OwnersOf it.
type marks struct{ triggers, owners string }

func marksOf(ctx context.Context, tx pgx.Tx, tables []uint32) (map[uint32]marks, error) {
	rows, _ := tx.Query(ctx, "SELECT u.oid, CASE WHEN EXISTS (SELECT FROM pg_roles AS r WHERE r.rolsuper"+
		" AND r.rolname IN (session_user, current_user)) THEN "+pipeline.TriggersOf("u.oid", true)+" ELSE '' END,"+
		" coalesce("+pipeline.OwnersOf("u.oid", true)+", '') FROM unnest($1::oid[]) AS u (oid)", tables)
	found := map[uint32]marks{}
	var table uint32
	var m marks
	_, err := pgx.ForEachRow(rows, []any{&table, &m.triggers, &m.owners}, func() error {
		found[table] = m
		return nil
	})
	return found, wrap.Errorf(err, "look for triggers and owners")
}

// ofOthers is Unruly and UnrulyIntoColumn of some tables.
func ofOthers(ctx context.Context, tx pgx.Tx, tables []uint32) (map[uint32]lent, error) {
	rows, _ := tx.Query(ctx, sqlfiles.Query("table_owners"), pgx.StrictNamedArgs{
		"tables": tables, "trusted": database.Trusted(tx.Conn()),
	})
	found := map[uint32]lent{}
	var table uint32
	var role, problem, owner, remedy string
	var fires bool
	_, err := pgx.ForEachRow(rows, []any{&table, &role, &problem, &owner, &fires, &remedy}, func() error {
		whom := "everybody"
		const asOurs = "run as the role that embedsidecar roles makes"
		asOwner := strings.HasPrefix(remedy, "ALTER ROLE")
		hint, trust := []string{remedy, "or " + asOurs}, []string(nil)
		switch {
		case remedy == "":
			hint = []string{asOurs + ", or as " + owner}
		case asOwner:
			hint = []string{asOurs}
		}
		if fires {
			hint = append(hint,
				"or use an embedding table (into: {table: NAME}): a write into it fires no trigger of the source table")
		}
		if owner != "" {
			whom = fmt.Sprintf("%q", owner)
			hint, trust = append(hint, database.TrustOwners(role, owner)), []string{owner}
		}
		if asOwner { // no statement to paste: the owner may be untrusted
			hint = append(hint, "or, if "+owner+" may read all databases of this server, as REPLICATION allows: "+
				strings.TrimSuffix(remedy, ";")+", and connect as "+owner)
		}
		err := &refusal.ConfigError{
			Problem: fmt.Sprintf("%s %s, whose triggers and functions would run as superuser %q", problem, whom, role),
			Hint:    hint, Code: code.Untrusted, Trust: trust,
		}
		l := found[table]
		if fires {
			l.fired = err
		} else {
			l.unruly = err
		}
		found[table] = l
		return nil
	})
	return found, wrap.Errorf(err, "look up owners of tables")
}

// Harmless returns *ConfigError for an expression that is not safe to run for a user who may not act as this session's
// role. It may only compute with built-in functions, and neither read nor do anything else. It is not run here.
func Harmless(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) error {
	refuse := func(why string) error {
		return refusal.Coded(code.Untrusted, word+" "+why,
			"the requesting role may not act as the role that evaluates it: its expressions may name columns without their table, and call "+
				"functions of PostgreSQL that compute",
			"or declare the pipeline as a role that may, or in the file")
	}
	return database.RolledBack(ctx, tx, func(tx pgx.Tx) error {
		// The lock keeps its columns and their types unchanged.
		if _, err := tx.Conn().PgConn().Prepare(ctx, "", "SELECT"+over(word, t), nil); err != nil {
			return fmt.Errorf("lock %s: %w", t.Quoted(), err)
		}
		locked, err := TableByOID(ctx, tx, t.OID)
		if err != nil {
			return err
		}
		alias := cmp.Or(t.As, "r")
		if _, column := locked.Column(alias); column {
			alias = ""
		}
		if name := foreignName(alias, expression); name != "" {
			return refuse("names " + name)
		}
		foreign, err := locked.StrangersTypes(ctx, tx, nil)
		if err == nil {
			err = locked.MeantByStrangers(tx, append(foreign, locked.domains()...), expression)
		}
		if err == nil {
			err = ParseExpression(ctx, tx, locked, word, expression)
		}
		if err != nil {
			return err
		}
		rule, tree, err := ruleOf(ctx, tx, t, word, expression)
		if database.Denied(err) {
			return errors.Join(refuse("cannot be checked: the role has no privilege TEMPORARY on the database"), err)
		}
		if err != nil {
			return err
		}
		if problem := forbidden(tree, word); problem != "" {
			return refusal.Coded(code.Expression, word+" "+problem)
		}
		var what *string
		err = tx.QueryRow(ctx, sqlfiles.Query("harmful_in_rule"), pgx.StrictNamedArgs{
			"rule": rule, "table": t.OID, "functions": functionsIn(tree),
		}).Scan(&what)
		if err != nil {
			return fmt.Errorf("look up what %s calls: %w", word, err)
		}
		switch {
		case what != nil:
			return refuse("uses " + *what)
		case nameOfCatalog.MatchString(tree):
			return refuse("casts a value to a name of the catalog, such as regclass")
		}
		return nil
	})
}
