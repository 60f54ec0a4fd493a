package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// Unconfigured names a pipeline that is set up and that the configuration does not have: see takeAwayLeaving.
func Unconfigured(name string) string {
	return fmt.Sprintf("pipeline %q is set up and not configured: embedsidecar uninstall %s takes it away; run does after %s if it "+
		"is of this file and no other sidecar has it", name, health.Argument(name), followAfter)
}

// kept warns of a pipeline that works as it is set up though it is configured otherwise, as --no-init has it; "" where
// it is not.
func kept(spec, set pipeline.Spec) string {
	if set.Model == "" { // it has the model that is named here
		spec.Model = ""
	}
	was := resolve.Differences(spec, set)
	if len(was) == 0 {
		return ""
	}
	return fmt.Sprintf("pipeline %q is set up otherwise than it is configured here, and works as it is set up (--no-init): %s; "+
		"embedsidecar init changes it, or says what stands in the way", spec.Name, strings.Join(was, ", "))
}

// idleModel warns of --model where no pipeline is configured that could take it: those that are set up have their own.
func idleModel(c *config.Config, set []pipeline.Pipeline) string {
	model := c.DefaultModel
	if c.Origin("default_model") == "default" || c.Queries.Listen != "" || // queries have it embed texts
		slices.ContainsFunc(set, func(p pipeline.Pipeline) bool { return p.Model == model || p.Model == "" }) {
		return ""
	}
	var own []string
	for i := range set {
		own = append(own, fmt.Sprintf("%s has %q", set[i].Name, set[i].Model))
	}
	return fmt.Sprintf("no pipeline is configured here that could take the model %q, and those that are set up keep theirs: %s; "+
		"name the pipeline, too, and leave out --no-init: its set-up changes, or says what stands in the way",
		model, strings.Join(own, ", "))
}
