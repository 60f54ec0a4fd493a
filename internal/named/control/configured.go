package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The states of a configuration that was looked at again.
const (
	Taken     = "in_force"  // it was taken over
	Unchanged = "unchanged" // it says what is in force already
	Refused   = "refused"   // nothing was changed
	Planned   = "planned"   // this is what would be done
	Halfway   = "halfway"   // apply has failed after these steps
)

// Cost is what the backfill of a pipeline takes, about.
type Cost struct {
	Pipeline string   `json:"pipeline"`
	Rows     int64    `json:"rows"`
	Texts    int64    `json:"texts"` // to embed
	Tokens   int64    `json:"tokens"`
	Price    *float64 `json:"price"` // null: the model has none in the configuration
	Currency string   `json:"currency,omitempty"`
	Line     string   `json:"line"` // the same, and what else is known, in words
}

// Configured is what became of a configuration that was looked at again, or would.
type Configured struct {
	Instance     string   `json:"instance"`
	Pid          int      `json:"pid"`
	File         string   `json:"file"`
	State        string   `json:"state"`
	Changed      []string `json:"changed"`       // settings and lists that are taken over
	NeedsRestart []string `json:"needs_restart"` // settings that take effect at the next start
	Steps        []string `json:"steps"`         // what is made and changed in the database, in this order
	Removed      []string `json:"removed"`       // pipelines that are taken away
	Lost         []string `json:"lost"`          // what goes with them
	Costs        []Cost   `json:"costs"`
	Warnings     []string `json:"warnings"`
	Reason       string   `json:"reason,omitempty"` // why it is refused
	Hints        []string `json:"hints,omitempty"`
}

// Filled has lists in place of those that are missing.
func (c Configured) Filled() Configured {
	for _, list := range []*[]string{&c.Changed, &c.NeedsRestart, &c.Steps, &c.Removed, &c.Lost, &c.Warnings} {
		if *list == nil {
			*list = []string{}
		}
	}
	if c.Costs == nil {
		c.Costs = []Cost{}
	}
	return c
}

// Short returns the same in at most so many bytes of JSON, as far as cutting texts and the ends of lists gets it there.
func (c Configured) Short(bytes int) Configured {
	for entries, letters := 100, 1000; ; entries, letters = entries/2, letters/2 {
		s := c
		s.Reason = cut(c.Reason, letters)
		for _, list := range []*[]string{&s.Changed, &s.NeedsRestart, &s.Steps, &s.Removed, &s.Lost, &s.Warnings, &s.Hints} {
			*list = first(*list, entries, letters)
		}
		if text, err := json.Marshal(s); err != nil || len(text) <= bytes || letters == 0 {
			return s
		}
	}
}

// first are the first entries of a list, each cut.
func first(list []string, entries, letters int) (kept []string) {
	for _, text := range list[:min(len(list), entries)] {
		kept = append(kept, cut(text, letters))
	}
	if more := len(list) - entries; more > 0 {
		kept = append(kept, fmt.Sprintf("and %d more", more))
	}
	return kept
}

func cut(text string, letters int) string {
	if len(text) <= letters {
		return text
	}
	return strings.ToValidUTF8(text[:letters], "") + "..."
}

// Configure has a sidecar take over its configuration as it is written down now. It returns when that is done.
func (s Sidecar) Configure(ctx context.Context) (Configured, error) {
	var done Configured
	if err := exchange(ctx, s.path, http.MethodPost, "/configuration", nil, &done); err != nil {
		return done, fmt.Errorf("have the sidecar %s (process %d) read its configuration: %w", s.State.Instance, s.State.Pid,
			err)
	}
	return done, nil
}
