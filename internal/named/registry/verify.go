package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// changedHints are the ways out of a file that is not the pinned one.
var changedHints = []string{
	"put the file back that was pinned, or, if the new one is meant:",
	"embedsidecar plugins register FILE, then embedsidecar plugins reload; an entry in the configuration file is changed there",
}

// Verdict is what was found of one plugin.
type Verdict struct {
	Plugin string   `json:"plugin"`
	Result string   `json:"result"` // "ok" or "wrong"
	Detail string   `json:"detail"`
	Hints  []string `json:"hints,omitempty"`
}

// The results of a Verdict.
const (
	verdictOK    = "ok"
	verdictWrong = "wrong"
)

// Verify checks the files of plugins against their pins, starts them and sees that they answer in order: those of these
// names, or all that are pinned. Where something is wrong, an error that says so comes beside the verdicts.
func (c Registry) Verify(ctx context.Context, names []string) ([]Verdict, error) {
	settings, err := c.source.Registered()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for _, p := range slices.Concat(settings.Plugins.Catalog, settings.Plugins.Registered) {
			if p.SHA256 != "" && !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	list := []Verdict{}
	var wrong int64
	var hints []string
	for _, name := range names {
		v := c.verify(ctx, settings, name)
		if v.Result != verdictOK {
			wrong++
		}
		list, hints = append(list, v), append(hints, v.Hints...)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wrong > 0:
		return list, problem.New(problem.Failed,
			fmt.Errorf("%s not to be used like this", wording.Count(wrong, "plugin")), slices.Compact(hints)...)
	}
	return list, nil
}

func (c Registry) verify(ctx context.Context, settings *config.Config, name string) Verdict {
	k := c.known(settings, name)
	switch k.State {
	case fileChanged:
		return Verdict{name, verdictWrong, k.Path + " is not the file that was pinned: " + k.Detail, changedHints}
	case fileMissing, fileUnusable:
		return Verdict{name, verdictWrong, k.Detail, k.hints}
	}
	d, _, err := c.describe(ctx, name, "") // its start asks the texts whose order is known
	if err != nil {
		return Verdict{name, verdictWrong, c.source.Redact(err.Error()), problem.Hints(err)}
	}
	detail := fmt.Sprintf("version %s, model %s, %d wide", d.Version, d.Model, d.Dims)
	switch {
	case k.Version != "" && k.Version != d.Version:
		return Verdict{name, verdictWrong, fmt.Sprintf("it calls itself version %s, and version %s was written down",
			d.Version, k.Version), changedHints}
	case k.SHA256 == "":
		detail += "; not pinned"
	}
	return Verdict{name, verdictOK, detail, nil}
}
