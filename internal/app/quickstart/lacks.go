package quickstart

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// lack is something that prevents the set-up.
type lack struct {
	what  string
	hint  []string // words
	sql   []string // statements for an administrator
	trust []string // owners whom a superuser would have to trust: no statement decides that for the user
	err   error    // gives its class and code
}

// lack adds something that is missing, unless its statements are already listed.
func (q *quickstart) lack(what string, err error, hints ...string) {
	l := lack{what: what, err: err, trust: owners(err)}
	known, mended := false, true
	for _, hint := range hints {
		if strings.HasPrefix(hint, database.Managed) && !q.managed {
			continue
		}
		words, sql := hint, []string(nil)
		if len(l.trust) == 0 {
			words, sql = apart(hint)
		}
		if words != "" {
			l.hint = append(l.hint, words)
		}
		for _, statement := range sql {
			if q.scripted(statement) {
				known = true
				continue
			}
			l.sql, mended = append(l.sql, statement), false
		}
	}
	standby := err != nil && problem.Code(err) == code.Standby // several checks report it
	same := func(other lack) bool {
		return other.what == what || standby && problem.Code(other.err) == code.Standby
	}
	if known && mended || slices.ContainsFunc(q.lacks, same) {
		return
	}
	q.lacks = append(q.lacks, l)
}

// owners returns the roles that a superuser would have to trust, from an error and the errors in it.
func owners(err error) (list []string) {
	if of, ok := err.(interface{ Owners() []string }); ok {
		return of.Owners()
	}
	switch wrapped := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		return owners(wrapped.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wrapped.Unwrap() {
			list = append(list, owners(one)...)
		}
	}
	return list
}

// scripted reports whether a statement is already listed.
func (q *quickstart) scripted(statement string) bool {
	return slices.ContainsFunc(q.lacks, func(l lack) bool { return slices.Contains(l.sql, statement) })
}

// also adds the error of a plan to what is missing. Joined errors are added one by one.
func (q *quickstart) also(err error) {
	if err == nil {
		return
	}
	joined := err
	if told, ok := err.(*problem.Error); ok { //nolint:errorlint // what was joined is just below
		joined = told.Err
	}
	if several, ok := joined.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			q.also(one)
		}
		return
	}
	if denied, ok := errors.AsType[*refusal.PermissionError](err); ok && len(denied.Each) > 0 {
		for _, d := range denied.Each {
			q.lack(d.What+": "+d.Why, err, terminated(d.SQL)...)
		}
		return
	}
	q.lack(database.Words(err), err, problem.Hints(err)...)
}

// terminated ends each statement with a semicolon.
func terminated(sql []string) []string {
	return lists.Map(sql, func(s string) string { return strings.TrimSuffix(s, ";") + ";" })
}

// inTheWay is the error about everything that prevents the set-up. What needs no statement comes first. The statements
// are one block to paste.
func (q *quickstart) inTheWay() error {
	slices.SortStableFunc(q.lacks, func(a, b lack) int { return min(len(a.sql), 1) - min(len(b.sql), 1) })
	var hints []string
	several := len(q.lacks) > 1
	for _, l := range q.lacks {
		if len(l.sql) > 0 {
			continue
		}
		if several {
			hints = append(hints, "- "+l.what)
		}
		hints = append(hints, l.hint...)
	}
	if statements, restart := script(q.lacks, several); len(statements) > 0 {
		hints = append(hints, "paste this into psql in database "+database.Quote(q.database)+", as "+q.administrator()+":")
		hints = append(hints, statements...)
		if restart {
			hints = append(hints, "then restart the server, and run this command again")
		} else {
			hints = append(hints, "then run this command again")
		}
	}
	first := q.lacks[0]
	err := errors.New(first.what)
	if len(q.lacks) > 1 {
		err = fmt.Errorf("%d things are not ready, and nothing was done", len(q.lacks))
	}
	return &problem.Error{Class: problem.Of(first.err), Code: problem.Code(first.err), Err: err, Hint: hints}
}

// speaks matches statements that explain themselves.
var speaks = regexp.MustCompile(`^(?:ALTER SYSTEM|ALTER ROLE|CREATE EXTENSION) `)

// script returns the statements for an administrator, with comments on those that do not explain themselves. It reports
// whether the server must be restarted after them.
func script(lacks []lack, comments bool) (lines []string, restart bool) {
	for _, l := range lacks {
		if len(l.sql) == 0 {
			continue
		}
		if comments && (len(l.hint) > 0 || !speaks.MatchString(l.sql[0])) {
			_, why, _ := strings.Cut(l.what, ": ") // the statement names what it is about
			lines = append(lines, "-- "+wording.OneLine(cmp.Or(why, l.what)))
		}
		for _, words := range l.hint {
			lines = append(lines, "--    "+wording.OneLine(words))
		}
		lines = append(lines, l.sql...)
		restart = restart || strings.HasPrefix(l.sql[0], "ALTER SYSTEM")
	}
	return lines, restart
}

// administrator says who runs the statements.
func (q *quickstart) administrator() string {
	if q.managed {
		return "the administrator of this managed server"
	}
	return "a superuser"
}

// A statement for an administrator, and such statements at the start of a hint or after a colon, with the rest of the
// hint. Nothing in quotes is taken for a statement: a name may hold anything.
var (
	oneStatement = regexp.MustCompile(`(?:ALTER|CREATE|GRANT) (?:[^;"']|"[^"]*"|'[^']*')*;`)
	statements   = regexp.MustCompile(`^(?:[^"]*?: )?((?:` + oneStatement.String() + `(?: |$))+)(.*)$`)
	quotedNames  = regexp.MustCompile(`"[^"]*"`)
)

// apart splits a hint into statements for an administrator and text. Templates stay text, and so do alternatives to the
// hint before.
func apart(hint string) (words string, sql []string) {
	template := func(sql string) bool { return strings.Contains(quotedNames.ReplaceAllString(sql, ""), "...") }
	switch {
	case strings.HasSuffix(hint, " run:"): // the statements that follow are among those at the end
		return "", nil
	case strings.HasPrefix(hint, "or "):
		return hint, nil
	case problem.IsStatement(hint) && !template(hint):
		return "", []string{hint}
	}
	found := statements.FindStringSubmatch(hint)
	if found == nil || template(found[1]) {
		return hint, nil
	}
	sql = oneStatement.FindAllString(found[1], -1)
	if strings.HasPrefix(found[2], "(") { // more information; a restart is mentioned at the end
		words = found[2]
	}
	return words, sql
}
