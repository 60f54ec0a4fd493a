// Package docs is the manual, as the program carries it: the dashboard shows it at /help.
package docs

import "embed"

// Pages are the pages, by their names: search.md, adr/0001-level-triggered-tasks.md.
//
//go:embed *.md adr/*.md
var Pages embed.FS
