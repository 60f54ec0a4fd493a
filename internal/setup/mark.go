package setup

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
)

// comment returns the statement that marks a pipeline's destination.
func (in *initializer) comment(f *resolve.Findings) string {
	return "COMMENT ON " + f.Pipeline.DestinationObject() + " IS " +
		database.Literal(catalog.MarkOf(f.Table, in.o.Descriptions[f.Pipeline.Name].Fingerprint))
}

// markAnew plans a new comment for a destination of ours that another embedder takes over.
func (in *initializer) markAnew(f *resolve.Findings) (a step.Action, needed bool) {
	now, want := f.Destination.Mark, catalog.MarkOf(f.Table, in.o.Descriptions[f.Pipeline.Name].Fingerprint)
	if now == want || !strings.HasPrefix(now, catalog.MarkOf(f.Table, "")) || !f.Destination.Owned {
		return a, false
	}
	return step.Action{
		Step:    step.Step{What: "comment on " + catalog.DestinationName(f.Pipeline.Spec), SQL: []string{in.comment(f)}},
		Allowed: true,
	}, true
}

// takesUp reports whether a destination that holds vectors may be taken over without --overwrite: an embedding table
// that init made for this very source and embedder, and that an earlier set-up left. A column that was left may have
// been filled by somebody since.
func (in *initializer) takesUp(f *resolve.Findings) bool {
	return !f.Pipeline.InSource() && f.Destination.Mark == catalog.MarkOf(f.Table,
		in.o.Descriptions[f.Pipeline.Name].Fingerprint)
}

// occupied is the error of a destination that holds vectors and is not taken up.
func (in *initializer) occupied(f *resolve.Findings) error {
	name := catalog.DestinationName(f.Pipeline.Spec)
	e := &refusal.ConfigError{
		Pipeline: f.Pipeline.Name, Problem: "the destination " + name + " holds vectors that this pipeline did not write",
		Hint: []string{"name another destination, or take it over with --overwrite: every vector in it is then replaced"},
		Code: code.Taken,
	}
	source, fingerprint, ours := strings.Cut(strings.TrimPrefix(f.Destination.Mark, catalog.VectorsOf), " by ")
	switch {
	case !ours:
	case f.Pipeline.InSource() && source == f.Table.Quoted():
		e.Problem = "the destination " + name +
			" holds vectors that an earlier set-up left, unless someone else has written there since"
	case source != f.Table.Quoted():
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, of the rows of %s", name,
			source)
	default:
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, made by another model (%s)",
			name, brief(fingerprint))
	}
	return e
}
