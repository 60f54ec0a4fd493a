package quickstart

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
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

// mended inspects the database and chooses what to embed. If a user can fix what is not ready, mended waits for that,
// so that the command need not be run again.
func (q *quickstart) mended(ctx context.Context) ([]pipeline.Spec, error) {
	const (
		seldom   = 5 * time.Second
		patience = 30 * time.Second
		enough   = 3 // failed tries on a server that answers
	)
	told, failed := map[string]bool{}, 0
	var began time.Time // of the wait
	helped, most := false, 0
	for {
		specs, err := q.looked(ctx)
		can := err != nil && len(q.lacks) > 0 && q.mendable()
		switch {
		case err == nil && !began.IsZero():
			q.pool.Reset() // these connections are older than the extension
			q.server.Reset()
			return specs, nil
		case err == nil || !q.Wait || began.IsZero() && !can:
			return specs, err
		case can:
			failed = 0
		case q.pool.Ping(ctx) == nil: // otherwise the server is restarting
			if failed++; failed >= enough {
				return nil, err
			}
		}
		q.idle()
		names := []string{"the server"}
		if can {
			unheard := slices.DeleteFunc(slices.Clone(q.lacks), func(l lack) bool {
				return told[l.what] || len(l.sql)+len(l.trust) == 0
			})
			if at := slices.IndexFunc(unheard, unpackaged); q.superuser && at >= 0 {
				unheard = unheard[at : at+1] // ask for nothing else before it exists
			}
			for _, l := range unheard {
				told[l.what] = true
			}
			trusts, refused := q.mend(ctx, unheard, err)
			switch {
			case refused != nil:
				return nil, refused
			case trusts:
				continue
			case len(unheard) > 0 || began.IsZero():
				began = time.Now()
			}
			names = lists.Map(q.lacks, func(l lack) string { return strings.SplitN(l.what, ": ", 2)[0] })
		}
		if !helped && !q.superuser && !q.managed && !q.contained && q.local() && time.Since(began) > patience {
			helped = true
			q.Say("if psql asks for a password that nobody knows: sudo -u postgres psql -p %d -d %s",
				q.pool.Config().ConnConfig.Port, health.Quoted(q.database))
		}
		doing := "waiting"
		if most = max(most, len(names)); len(names) < most { // what is left
			doing += " for " + strings.Join(names, ", ")
		}
		q.Waiting(doing + ": " + wording.Age(math.Round(time.Since(began).Seconds())))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(cmp.Or(q.Every, seldom)):
		}
	}
}

// trust makes this command trust some owners, and connects again.
func (q *quickstart) trust(ctx context.Context, owners []string) error {
	q.trusted = strings.Join(slices.Concat(q.Config.Database.TrustedOwners(), owners), ",")
	q.Config.Database.TrustOwner = q.trusted
	pool, server := q.pool, q.server
	if _, err := q.connect(ctx); err != nil {
		return err
	}
	server.Close()
	pool.Close()
	return nil
}

// looked inspects the database once.
func (q *quickstart) looked(ctx context.Context) ([]pipeline.Spec, error) {
	q.lacks = nil
	q.doing("looking at what the server has")
	if err := q.look(ctx, false); err != nil {
		return nil, err
	}
	specs, err := q.chosen(ctx)
	if err != nil && len(q.lacks) == 0 && problem.Code(err) == code.Untrusted {
		q.also(err)
	}
	return specs, err
}

// mendable reports whether statements of an administrator, or a superuser's trust, fix everything that is missing. A
// server that cannot be reached may be restarting.
func (q *quickstart) mendable() bool {
	return !slices.ContainsFunc(q.lacks, func(l lack) bool {
		return len(l.sql) == 0 && (len(l.trust) == 0 || !q.superuser) && problem.Of(l.err) != problem.Connect
	})
}

// unpackaged reports whether the server lacks an extension's files, so that no statement can create the extension.
func unpackaged(l lack) bool { return problem.Code(l.err) == code.Pgvector && len(l.hint) > 0 }

// mend asks a superuser whether to run the statements that fix what is missing, and whether to trust the owners
// involved. For other users it prints the statements, as one psql command if the name of a superuser is known. If a
// superuser does not trust the owners, mend returns failed.
func (q *quickstart) mend(ctx context.Context, lacks []lack, failed error) (trusts bool, err error) {
	if len(lacks) == 0 {
		return false, nil
	}
	statements, restart := script(lacks, true)
	block := strings.Join(statements, "\n")
	at := q.pool.Config().ConnConfig
	switch {
	case q.superuser && unpackaged(lacks[0]):
		q.Say("Not ready yet:\n\n%s\n", strings.Join(statements[:len(statements)-len(lacks[0].sql)], "\n"))
	case q.superuser:
		if trusts, err = q.confirmed(ctx, lacks, statements, failed); err != nil {
			return trusts, err
		}
	case q.managed:
		q.Say("Not ready yet. Paste into psql in database %s, as %s:\n\n%s\n", database.Quote(q.database),
			q.administrator(), block)
	default:
		// The semicolon makes the first line an error when this is pasted into psql.
		q.Say("Not ready yet. Paste as %s in another terminal:\n\npsql -h %s -p %d -U %s -d %s <<'%[7]s';\n%[6]s\n%[7]s\n",
			q.administrator(), health.Quoted(at.Host), at.Port, health.Quoted(q.super), health.Quoted(q.database), block,
			endOf(block))
	}
	if restart {
		q.Say("Then restart the server%s", q.restart())
	}
	return trusts, nil
}

// endOf returns a here-document delimiter that none of the lines equals: names chosen by others may contain any line.
func endOf(lines string) string {
	word := "SQL"
	for slices.Contains(strings.Split(lines, "\n"), word) {
		word += "_"
	}
	return word
}

// confirmed asks a superuser once, and runs the statements.
func (q *quickstart) confirmed(ctx context.Context, lacks []lack, statements []string, failed error) (trusts bool,
	err error,
) {
	var owners []string
	for _, l := range lacks {
		owners = append(owners, l.trust...)
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	whom := strings.Join(owners, " and ")
	if len(statements) > 0 {
		q.Say("Not ready yet:\n\n%s\n", strings.Join(statements, "\n"))
	}
	for _, l := range lacks {
		if len(l.trust) > 0 {
			q.Say("%s", l.what)
		}
	}
	var yes bool
	switch {
	case len(owners) == 0:
		yes, err = q.Ask(ctx, "Run this now?")
	case len(statements) == 0:
		yes, err = q.Agree(ctx, "Trust "+whom+"?", nil)
	default:
		yes, err = q.Agree(ctx, "Run this, and trust "+whom+"?", nil)
	}
	switch {
	case err != nil:
		return false, err
	case !yes && len(owners) > 0:
		return false, failed
	}
	for i := 0; yes && i < len(statements); i++ {
		if _, err := q.server.Exec(ctx, statements[i]); err != nil {
			return false, fmt.Errorf("run %s: %w", statements[i], database.Wrap(err))
		}
	}
	if len(owners) == 0 {
		return false, nil
	}
	return true, q.trust(ctx, owners)
}

// local reports whether the server is reached at a local address.
func (q *quickstart) local() bool {
	host := q.pool.Config().ConnConfig.Host
	return host == "localhost" || strings.HasPrefix(host, "/") || net.ParseIP(host).IsLoopback()
}

// restart says how to restart the server, as far as that is known.
func (q *quickstart) restart() string {
	switch {
	case !q.local():
		return "."
	case q.contained:
		return " (in a container: docker restart NAME)"
	}
	return ": sudo systemctl restart postgresql"
}
