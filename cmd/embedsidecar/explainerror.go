package main

import (
	"context"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/code"
)

func newExplainError() *command {
	return &command{
		name: "explain-error", group: groupTool, usage: "tell what is behind the code of an error, and what helps",
		description: "CODE is as the error shows it, such as ES0307. Without one, all codes are listed.",
		arguments:   "CODE", maxArgs: 1,
		run: func(_ context.Context, env *environment) error {
			list := code.All()
			if len(env.args) == 1 {
				entry, known := code.Find(env.args[0])
				if !known {
					return fail(exitNoMatch, fmt.Errorf("there is no code %q", env.args[0]),
						"embedsidecar explain-error lists them all")
				}
				if env.output == "table" {
					return env.printf("%s: %s\n  why: %s\n  fix: %s\n  docs: %s\n", entry.Code, entry.Title,
						fill(entry.Cause, 7), fill(entry.Fix, 7), entry.Docs)
				}
				list = []code.Entry{entry}
			}
			return env.show(map[string][]code.Entry{"errors": list}, func() listing {
				l := listing{header: []string{"code", "title", "docs"}}
				for _, e := range list {
					l.rows = append(l.rows, []any{e.Code, e.Title, e.Docs})
				}
				return l
			})
		},
	}
}
