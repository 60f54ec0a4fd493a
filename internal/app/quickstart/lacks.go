package quickstart

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// lack is something that keeps a set-up from being made.
type lack struct {
	what string
	hint []string
	err  error // its kind
}

// also adds what a plan has met to what is lacking, if it is not known yet: each of several that were joined.
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
	if _, rights := errors.AsType[*refusal.PermissionError](err); rights { // with all the grants, not one of them
		q.lacks = slices.DeleteFunc(q.lacks, func(l lack) bool { return strings.HasPrefix(l.what, "role: ") })
	}
	words, kind := database.Words(err), problem.Code(err)
	if !slices.ContainsFunc(q.lacks, func(l lack) bool {
		return l.what == words || kind == code.Standby && problem.Code(l.err) == kind
	}) {
		q.lacks = append(q.lacks, lack{words, problem.Hints(err), err})
	}
}

// inTheWay is the error of everything that keeps a set-up from being made, each with what mends it. The statements of
// all of them come at the end, each once, as they are pasted.
func (q *quickstart) inTheWay() error {
	var hints, script []string
	for i, l := range q.lacks {
		if len(q.lacks) > 1 {
			hints = append(hints, fmt.Sprintf("%d. %s", i+1, l.what))
		}
		for _, hint := range l.hint {
			words, sql := apart(hint)
			if words != "" {
				hints = append(hints, words)
			}
			for _, statement := range sql {
				if !slices.Contains(script, statement) {
					script = append(script, statement)
				}
			}
		}
	}
	if len(script) > 0 {
		next := "then run this command again"
		if slices.ContainsFunc(script, func(s string) bool { return strings.HasPrefix(s, "ALTER SYSTEM") }) {
			next = "then restart the server, and run this command again"
		}
		hints = append(hints, fmt.Sprintf("as a superuser, or the administrator of a managed server, run this in database %s:",
			database.Quote(q.database)))
		hints = append(append(hints, script...), next)
	}
	first := q.lacks[0]
	err := errors.New(first.what)
	if len(q.lacks) > 1 {
		err = fmt.Errorf("%d things are not ready, and nothing was done", len(q.lacks))
	}
	return &problem.Error{Class: problem.Of(first.err), Code: problem.Code(first.err), Err: err, Hint: hints}
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
