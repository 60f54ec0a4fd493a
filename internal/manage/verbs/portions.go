package actions

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// portion is how many rows one transaction of an action changes: the stream waits for who holds tasks.
const portion = 2000

// longestRest bounds how long an action waits between two portions. It takes a fifth of the time of one connection: the
// server's other work is not to feel a million rows.
const longestRest = 5 * time.Second

// act runs a function of the schema that answers with a word.
func (a *Actions) act(ctx context.Context, query string, args pgx.StrictNamedArgs) (word string, err error) {
	args["said_by"] = a.by
	err = a.pool.QueryRow(ctx, sqlfiles.Query(query), args).Scan(&word)
	return word, refused(err)
}

// portions runs a function of the schema that changes rows, until none are left for it, each portion in a transaction
// of its own: what was done when ctx ends stays done, and the audit says how much that was. It returns how many rows it
// has changed; a dry run returns how many it would.
func (a *Actions) portions(ctx context.Context, query string, args pgx.StrictNamedArgs) (rows int64, err error) {
	p, err := a.some(ctx, query, args, math.MaxInt64, 0)
	if err == nil && args["dry_run"] == true {
		return *p.Matched, nil
	}
	return p.Changed, err
}

// some is portions, until so many rows are changed; continues is the entry of the audit that an earlier call made, or
// 0.
func (a *Actions) some(ctx context.Context, query string, args pgx.StrictNamedArgs, most, continues int64,
) (p Portion, err error) {
	args["said_by"], args["continues"] = a.by, nil
	if continues != 0 {
		args["continues"] = continues
	}
	rests := pace.Pace{Share: pace.Queue}
	for {
		args["max_rows"] = min(portion, most-p.Changed)
		began := time.Now()
		var changed int64
		var remaining, entry *int64
		err := database.UntilUnlocked(ctx, func() error {
			return a.pool.QueryRow(ctx, sqlfiles.Query(query), args).Scan(&changed, &remaining, &entry)
		})
		if err != nil {
			return p, refused(err)
		}
		if p.Changed += changed; entry != nil {
			p.AuditID = *entry
		}
		switch {
		case args["dry_run"] == true:
			p.Matched, p.Remaining = remaining, remaining
			return p, nil
		case p.Matched == nil && args["continues"] == nil && remaining != nil:
			all := changed + *remaining
			p.Matched = &all
		}
		if p.Remaining = remaining; remaining == nil && p.Matched != nil { // it is not counted twice
			left := max(*p.Matched-p.Changed, 0)
			p.Remaining = &left
		}
		if changed == 0 || remaining != nil && *remaining == 0 || p.Changed >= most {
			return p, nil
		}
		args["continues"] = *entry
		now := time.Now()
		rests.Spend(now.Sub(began), now)
		sleep.For(ctx, rests.Rest(now, longestRest)) // the next portion says that ctx has ended
	}
}

// ofKeys runs a function of the schema on rows that are named: as many at a time as a portion holds.
func (a *Actions) ofKeys(ctx context.Context, query string, args pgx.StrictNamedArgs, keys []string,
) (rows int64, err error) {
	if len(keys) == 0 {
		args["keys"] = nil
		return a.portions(ctx, query, args)
	}
	for len(keys) > 0 {
		args["keys"] = keys[:min(len(keys), portion)]
		n, err := a.portions(ctx, query, args)
		if rows += n; err != nil {
			return rows, err
		}
		keys = keys[min(len(keys), portion):]
	}
	return rows, nil
}
