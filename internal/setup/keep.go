package setup

import (
	"fmt"
	"maps"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// keep reports whether a pipeline stays as it is set up though it is configured otherwise, and says why. Who asks for
// a change by hand may go back to an older definition, and is told so.
func (in *initializer) keep(configured, spec pipeline.Spec, s *resolve.Stored) (kept bool, warning string) {
	d := s.Differs(configured, spec)
	switch {
	case d.Was == "":
		return false, ""
	case in.o.NoChange:
		return true, fmt.Sprintf("pipeline %q is set up otherwise than configured here, and is not changed (--no-change): %s", spec.Name, d.Was)
	case d.Older && in.stays(s):
		return true, fmt.Sprintf("pipeline %q %s: it is not changed: %s; %s", spec.Name, d.Newer(), d.Was,
			resolve.WayToNewer)
	case d.Older:
		return false, fmt.Sprintf("pipeline %q goes back to version %d of its definition, as version %d: %s; a sidecar that starts with the newer configuration does not change that", spec.Name, d.Configured, d.Now+1, d.Was)
	}
	return false, fmt.Sprintf("pipeline %q was set up otherwise, and is changed to what is configured here, as version %d of its definition: %s; "+
		"a sidecar that starts with the old configuration does not change it back: deploy this one everywhere", spec.Name, d.Now+1,
		d.Was)
}

// stays reports whether a pipeline is left as it is set up by who starts with an older definition.
func (in *initializer) stays(s *resolve.Stored) bool {
	return in.o.Starting && (in.o.Held == nil || in.o.Held(s.Name, s.CurrentDigest()))
}

// keeps notes why a pipeline stays as it is set up.
func (in *initializer) keeps(pipeline, why string) {
	if in.report.Kept = maps.Clone(in.report.Kept); in.report.Kept == nil {
		in.report.Kept = map[string]string{}
	}
	in.report.Kept[pipeline] = why
}
