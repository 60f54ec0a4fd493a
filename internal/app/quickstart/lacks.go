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

// lack is something that keeps a set-up from being made.
type lack struct {
	what  string
	hint  []string // words
	sql   []string // statements for an administrator
	trust []string // the owners whom a superuser would have to trust: that is his choice, and no statement's
	err   error    // its kind
}

// lack remembers something that is lacking, unless its statements are those of others.
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
	standby := err != nil && problem.Code(err) == code.Standby // which several have met
	same := func(other lack) bool {
		return other.what == what || standby && problem.Code(other.err) == code.Standby
	}
	if known && mended || slices.ContainsFunc(q.lacks, same) {
		return
	}
	q.lacks = append(q.lacks, l)
}

// owners are those whom a superuser would have to trust, by an error or one within it.
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

// scripted reports whether the administrator runs a statement anyway.
func (q *quickstart) scripted(statement string) bool {
	return slices.ContainsFunc(q.lacks, func(l lack) bool { return slices.Contains(l.sql, statement) })
}

// also adds what a plan has met to what is lacking: each of several that were joined.
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

// inTheWay is the error of everything that keeps a set-up from being made. What takes no statement comes first. The
// statements are one block, to be pasted.
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

// speaks are statements that say themselves what they are for.
var speaks = regexp.MustCompile(`^(?:ALTER SYSTEM|ALTER ROLE|CREATE EXTENSION) `)

// script is the statements for an administrator, with a comment on what each is for that does not say so itself. It
// reports whether the server has to be restarted after them.
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

// administrator is who runs the statements.
func (q *quickstart) administrator() string {
	if q.managed {
		return "the administrator of this managed server"
	}
	return "a superuser"
}

// statements are those for an administrator at the beginning of a way out, or behind a colon, and what follows them.
var statements = regexp.MustCompile(`^(?:.*?: )?((?:(?:ALTER|CREATE|GRANT) (?:[^;"']|"[^"]*"|'[^']*')*;(?: |$))+)(.*)$`)

// apart takes a way out apart into statements for an administrator and words. What is not to be run as it stands, and
// what is another way than the one before it, stays words.
func apart(hint string) (words string, sql []string) {
	switch {
	case strings.HasSuffix(hint, " run:"): // the statements that follow are among those at the end
		return "", nil
	case strings.HasPrefix(hint, "or "):
		return hint, nil
	case problem.IsStatement(hint) && !strings.Contains(hint, "..."):
		return "", []string{hint}
	}
	found := statements.FindStringSubmatch(hint)
	if found == nil || strings.Contains(found[1], "...") {
		return hint, nil
	}
	for s := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(found[1]), ";"), "; ") {
		sql = append(sql, s+";")
	}
	if strings.HasPrefix(found[2], "(") { // what else there is to know; that a restart follows is told at the end
		words = found[2]
	}
	return words, sql
}
