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

// Unconfigured warns of a pipeline that is set up but not configured: see takeAwayLeaving.
func Unconfigured(name string) string {
	return fmt.Sprintf("pipeline %q is set up but not configured: embedsidecar uninstall %s removes it; run does after %s if it "+
		"belongs to this file and no other sidecar has it", name, health.Argument(name), followAfter)
}

// kept warns of a pipeline that works as it is set up although it is configured differently; "": no difference.
func kept(spec, set pipeline.Spec) string {
	if set.Model == "" { // it uses the default model of the configuration
		spec.Model = ""
	}
	was := resolve.Differences(spec, set)
	if len(was) == 0 {
		return ""
	}
	return fmt.Sprintf("pipeline %q is set up differently than configured here, and works as it is set up (--no-init): %s; "+
		"embedsidecar init changes it, or says what prevents that", spec.Name, strings.Join(was, ", "))
}

// idleModel warns if --model has no effect: the pipelines that are set up have their own models.
func idleModel(c *config.Config, set []pipeline.Pipeline) string {
	model := c.DefaultModel
	if c.Origin("default_model") == "default" || c.Queries.Listen != "" || // queries embed texts with it
		slices.ContainsFunc(set, func(p pipeline.Pipeline) bool { return p.Model == model || p.Model == "" }) {
		return ""
	}
	var own []string
	for i := range set {
		own = append(own, fmt.Sprintf("%s has %q", set[i].Name, set[i].Model))
	}
	return fmt.Sprintf("no pipeline configured here could take the model %q, and those that are set up keep theirs: %s; "+
		"name the pipeline, too, and leave out --no-init: the set-up changes it, or says what prevents that",
		model, strings.Join(own, ", "))
}
