package main

import (
	"context"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

func newExplainError() *command {
	return &command{
		name: "explain-error", group: groupTool, usage: "explain an error code and what helps",
		description: "CODE is as the error shows it, such as ES0307. Without one, all codes are listed. For everyone who " +
			"sees an error.",
		arguments: "CODE", maxArgs: 1,
		run: func(_ context.Context, env *environment) error {
			list := code.All()
			if len(env.args) == 1 {
				entry, known := code.Find(env.args[0])
				if !known {
					return fail(exitNoMatch, fmt.Errorf("there is no code %q", env.args[0]),
						"embedsidecar explain-error lists them all")
				}
				if env.out.ForPeople() {
					return env.printf("%s: %s\n  why: %s\n  fix: %s\n  docs: %s\n", entry.Code, entry.Title,
						output.Fill(entry.Cause, 7), output.Fill(entry.Fix, 7), entry.Docs)
				}
				list = []code.Entry{entry}
			}
			return output.List(env.out, "errors", list, []string{"code", "title", "docs"}, func(e *code.Entry) []any {
				return []any{e.Code, e.Title, e.Docs}
			})
		},
	}
}
