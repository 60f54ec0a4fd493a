package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/worker"
	"github.com/embedsidecar/embedsidecar/queue"
)

// verifyCommand proves that vectors are those of the rows.
type verifyCommand struct {
	deep   int  // rows to embed again
	repair bool // have put right what is found
}

func newVerify() *command {
	c := &verifyCommand{}
	return &command{
		name: "verify", group: groupObserve, usage: "prove that every vector is that of its row's text",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Compares the hash of every row's text with that of its vector, and with --deep embeds a sample again. Ends with status 4 when anything is missing, stale or orphaned, or when a row cannot be read because its text or filter fails: it is named, and the others are judged. With --repair what is found is queued for the sidecars that run, and only what they cannot mend counts; embedsidecar wait --caught-up waits for them.",
		flags: []cli.Flag{
			&cli.IntFlag{
				Name: "deep", Destination: &c.deep,
				Usage: "`N` rows of each pipeline are embedded again and their vectors compared", DefaultText: "0",
			},
			&cli.BoolFlag{
				Name: "repair", Destination: &c.repair, DisableDefaultText: true,
				Usage: "queue what is found: rows to look at again, vectors without a row to be taken away, and vectors that differ to be made anew",
			},
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *verifyCommand) run(ctx context.Context, env *environment) error {
	if c.deep < 0 {
		return misuse("--deep: expected a number that is not negative, not %d", c.deep)
	}
	return c.verify(ctx, env)
}

// verified is what was found of one pipeline.
type verified struct {
	Pipeline string `json:"pipeline"`
	OK       bool   `json:"ok"`
	worker.Report
	Problem string   `json:"problem,omitempty"` // why it could not be verified
	Repairs *repairs `json:"repairs,omitempty"` // what was asked for
}

// repairs are what was asked for to mend what a verification found.
type repairs struct {
	Looks int64 `json:"looks"` // rows, or vectors without one, that are looked at again
	Anew  int64 `json:"anew"`  // rows that are embedded anew
	Scan  bool  `json:"scan"`  // there are too many to be named: every row is compared

	looks, anew []string
}

// mostNamed is how many rows are queued by their keys; for more there is a scan, which keeps a bounded number of them
// open.
const mostNamed = 4000

// found notes a row that can be mended.
func (r *repairs) found(key string, anew bool) {
	list, n := &r.looks, &r.Looks
	if anew {
		list, n = &r.anew, &r.Anew
	}
	if *n++; len(*list) < mostNamed {
		*list = append(*list, key)
	}
}

// ask has the rows looked at by whoever works the queue.
func (r *repairs) ask(ctx context.Context, env *environment, pool *pgxpool.Pool, p *pipeline.Pipeline) error {
	if len(r.anew) > 0 {
		if _, err := anew(ctx, env, pool, p, r.anew); err != nil {
			return err
		}
	}
	var err error
	if r.Scan = r.Looks > mostNamed; r.Scan {
		err = queue.RequestScan(ctx, pool, "verify --repair", []int32{p.ID})
	} else {
		err = queue.Add(ctx, pool, p.ID, p.Priority, r.looks)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		err = fail(exitPermission, err, "use the role that owns the schema embedsidecar, the one that ran embedsidecar init")
	}
	return err
}

func (c *verifyCommand) verify(ctx context.Context, env *environment) (err error) {
	pool, pipelines, err := env.aim(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	var list []verified
	var bad []string
	for i := range pipelines {
		v, err := c.verifyOne(ctx, env, pool, plugins, &pipelines[i])
		if err != nil {
			return err
		}
		if list = append(list, v); !v.OK && (v.Repairs == nil || !v.mended()) {
			bad = append(bad, v.Pipeline)
		}
	}
	if err := c.show(env, list); err != nil || len(bad) == 0 {
		return err
	}
	return fail(exitFailed, fmt.Errorf("not as they should be: %s", strings.Join(bad, ", ")),
		"rows that wait for their vector count as well: embedsidecar wait --caught-up, and verify again")
}

// mended reports whether all that was found was queued.
func (v *verified) mended() bool {
	return v.Problem == "" && v.Missing+v.Stale+v.Orphans+v.Refused+v.Differ == v.Repairs.Looks+v.Repairs.Anew
}

func (c *verifyCommand) verifyOne(ctx context.Context, env *environment, pool *pgxpool.Pool, plugins *embedders.Pool,
	p *pipeline.Pipeline,
) (verified, error) {
	v := verified{Pipeline: p.Name}
	if p.Status != pipeline.Active {
		v.Problem = string(p.Status) + ": " + p.Detail
		return v, nil
	}
	var embedder embed.Embedder // not asked for anything unless deep
	if c.deep > 0 {
		h, err := plugins.Matching(ctx, p)
		if err != nil {
			return v, err
		}
		embedder = h
	}
	o := worker.Options{
		Pipeline: p, DB: pool, Queue: queue.New(pool), Service: embed.NewService(embedder, 0),
		Log: env.log,
	}
	if c.repair {
		v.Repairs = &repairs{}
		o.Found = v.Repairs.found
	}
	w := worker.New(o)
	var err error
	if v.Report, err = w.Verify(ctx, c.deep); err != nil {
		if _, refused := errors.AsType[*pgconn.PgError](err); !refused || ctx.Err() != nil {
			return v, err
		}
		v.Problem = err.Error() // the others may be judged all the same
	}
	v.OK = err == nil && v.Report.OK()
	if c.repair {
		if err := v.Repairs.ask(ctx, env, pool, p); err != nil {
			return v, err
		}
	}
	if v.Examples == nil {
		v.Examples = []string{}
	}
	return v, nil
}

func (c *verifyCommand) show(env *environment, list []verified) error {
	err := env.show(map[string][]verified{"pipelines": list}, func() listing {
		l := listing{
			header: []string{
				"pipeline", "rows", "with text", "covered", "missing", "stale", "orphans", "refused", "sampled",
				"differ", "verdict",
			},
			right: []int{1, 2, 3, 4, 5, 6, 7, 8, 9},
		}
		for _, v := range list {
			verdict := "ok"
			if v.Problem != "" {
				verdict = v.Problem
			} else if !v.OK {
				verdict = "not ok"
			}
			if v.Repairs != nil && v.Repairs.Looks+v.Repairs.Anew > 0 {
				verdict += fmt.Sprintf(", %d queued", v.Repairs.Looks+v.Repairs.Anew)
			}
			l.rows = append(l.rows, []any{
				v.Pipeline, v.Rows, v.Wanted, v.Covered, v.Missing, v.Stale, v.Orphans, v.Refused,
				v.Sampled, v.Differ, verdict,
			})
		}
		return l
	})
	if env.output == "table" {
		for _, v := range list {
			for _, example := range v.Examples {
				env.say("%s, row %s", v.Pipeline, cleanCell(example))
			}
		}
	}
	return err
}
