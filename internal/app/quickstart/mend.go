package quickstart

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// mended looks at the database and chooses what to embed. Where a user is there who can mend what is not ready, it
// waits for that: nothing has to be called, or read, a second time.
func (q *quickstart) mended(ctx context.Context) ([]pipeline.Spec, error) {
	specs, err := q.looked(ctx)
	for err != nil && q.Wait && q.superuser {
		if len(q.lacks) == 0 && problem.Code(err) == code.Untrusted {
			q.also(err)
		}
		owners, why := q.distrusted()
		if len(owners) == 0 {
			break
		}
		if trusts, asked := q.trusts(ctx, owners, why); asked != nil {
			return nil, asked
		} else if !trusts {
			return nil, err
		}
		specs, err = q.looked(ctx)
	}
	if !q.Wait || len(q.lacks) == 0 || !q.mendable() {
		return specs, err
	}
	const (
		seldom = 5 * time.Second
		enough = 3 // looks that fail at a server that answers
	)
	told, say, began := map[string]bool{}, q.Say, time.Now()
	defer func() { q.Say = say }()
	for failed := 0; err != nil && failed < enough; specs, err = q.looked(ctx) {
		q.idle()
		names := []string{"the server"}
		switch {
		case len(q.lacks) > 0 && q.mendable():
			failed = 0
			unheard := slices.DeleteFunc(slices.Clone(q.lacks), func(l lack) bool { return told[l.what] || len(l.sql) == 0 })
			for _, l := range unheard {
				told[l.what] = true
			}
			q.Say = say
			if err := q.mend(ctx, unheard); err != nil {
				return nil, err
			}
			names = lists.Map(q.lacks, func(l lack) string { return strings.SplitN(l.what, ": ", 2)[0] })
		case q.pool.Ping(ctx) == nil: // else it is being restarted
			failed++
		}
		q.Say = func(string, ...any) {} // what is chosen has been told
		q.Waiting("waiting for " + strings.Join(names, ", ") + ": " + wording.Age(time.Since(began).Seconds()))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(cmp.Or(q.Every, seldom)):
		}
	}
	q.pool.Reset() // the connections are older than the extension
	q.server.Reset()
	return specs, err
}

// trusting finds whom a superuser would have to trust, in the way out that says so.
var trusting = regexp.MustCompile(`^or trust .*: --trust-owner (.+) \(`)

// distrusted are the owners whose code would run as a superuser, and where it would.
func (q *quickstart) distrusted() (owners, why []string) {
	for _, l := range q.lacks {
		for _, hint := range l.hint {
			if found := trusting.FindStringSubmatch(hint); found != nil {
				why = append(why, l.what)
				owners = append(owners, strings.Split(found[1], ",")...)
			}
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners), why
}

// trusts asks a superuser whether he trusts some owners. If so, it connects again.
func (q *quickstart) trusts(ctx context.Context, owners, why []string) (bool, error) {
	q.idle()
	for _, what := range why {
		q.Say("%s", what)
	}
	yes, err := q.Agree(ctx, "Trust "+strings.Join(owners, " and ")+"?", nil)
	if err != nil || !yes {
		return false, err
	}
	q.trusted = strings.Join(slices.Concat(q.Config.Database.TrustedOwners(), owners), ",")
	q.Config.Database.TrustOwner = q.trusted
	pool, server := q.pool, q.server
	if _, err = q.connect(ctx); err != nil {
		return false, err
	}
	server.Close()
	pool.Close()
	return true, nil
}

// looked looks once.
func (q *quickstart) looked(ctx context.Context) ([]pipeline.Spec, error) {
	q.lacks = nil
	q.doing("looking at what the server has")
	if err := q.look(ctx, false); err != nil {
		return nil, err
	}
	return q.chosen(ctx)
}

// mendable reports whether statements of an administrator mend what is not ready. A server may be restarting.
func (q *quickstart) mendable() bool {
	return !slices.ContainsFunc(q.lacks, func(l lack) bool {
		return len(l.sql) == 0 && problem.Of(l.err) != problem.Connect
	})
}

// mend runs the statements that mend some lacks where the role may do so and the user agrees. Else it prints them, as
// one call of psql where the name of a superuser is known.
func (q *quickstart) mend(ctx context.Context, lacks []lack) error {
	if len(lacks) == 0 {
		return nil
	}
	statements, restart := script(lacks, true)
	block := strings.Join(statements, "\n")
	at := q.pool.Config().ConnConfig
	local := at.Host == "localhost" || strings.HasPrefix(at.Host, "/") || net.ParseIP(at.Host).IsLoopback()
	switch {
	case q.superuser:
		q.Say("Not ready yet. You may mend it, as a superuser:\n\n%s\n", block)
		yes, err := q.Ask(ctx, "Run this now?")
		if err != nil {
			return err
		}
		for i := 0; yes && i < len(statements); i++ {
			if _, err := q.server.Exec(ctx, statements[i]); err != nil {
				return fmt.Errorf("run %s: %w", statements[i], database.Wrap(err))
			}
		}
	case q.managed:
		q.Say("Not ready yet. Paste this into psql in database %s, as %s:\n\n%s\n", database.Quote(q.database),
			q.administrator(), block)
	default:
		socket := ""
		if local {
			socket = fmt.Sprintf(" (where it has no password: sudo -u postgres psql -p %d -d %s)", at.Port,
				health.Quoted(q.database))
		}
		q.Say("Not ready yet. In another terminal, as %s, paste%s:\n\npsql -h %s -p %d -U %s -d %s <<'SQL'\n%s\nSQL\n",
			q.administrator(), socket, health.Quoted(at.Host), at.Port, health.Quoted(q.super), health.Quoted(q.database), block)
	}
	switch {
	case restart && local:
		q.Say("Then restart the server (sudo systemctl restart postgresql, or docker restart NAME). This goes on by itself.")
	case restart:
		q.Say("Then restart the server. This goes on by itself.")
	default:
		q.Say("Then this goes on by itself.")
	}
	return nil
}
