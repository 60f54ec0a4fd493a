package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/step"
)

// tellOthers names the pipelines that the configuration does not have: to take one out of a file takes nothing away.
func (e *environment) tellOthers(names []string) {
	for _, name := range names {
		e.say("pipeline %q is set up and not configured: it goes on as it is; embedsidecar uninstall %s takes it away", name,
			health.Quoted(name))
	}
}

// tellKept warns of a pipeline that works as it is set up though it is configured otherwise, as --no-init has it.
func (e *environment) tellKept(spec, set pipeline.Spec) {
	if set.Model == "" { // it has the model that is named here
		spec.Model = ""
	}
	if was := resolve.Differences(spec, set); len(was) > 0 {
		e.say("warning: pipeline %q is set up otherwise than it is configured here, and works as it is set up (--no-init): %s; "+
			"embedsidecar init changes it, or says what stands in the way", spec.Name, strings.Join(was, ", "))
	}
}

// tellModel warns of --model where no pipeline is configured that could take it: those that are set up have their own.
func (e *environment) tellModel(set []pipeline.Pipeline) {
	model := e.config.DefaultModel
	if e.config.Origin("default_model") == "default" || e.config.Queries.Listen != "" || // queries have it embed texts
		slices.ContainsFunc(set, func(p pipeline.Pipeline) bool { return p.Model == model || p.Model == "" }) {
		return
	}
	var own []string
	for i := range set {
		own = append(own, fmt.Sprintf("%s has %q", set[i].Name, set[i].Model))
	}
	e.say("warning: no pipeline is configured here that could take the model %q, and those that are set up keep theirs: %s; "+
		"name the pipeline, too, and leave out --no-init: its set-up changes, or says what stands in the way",
		model, strings.Join(own, ", "))
}

// tellSteps tells a person what was made and how to undo it.
func (e *environment) tellSteps(steps []step.Step, verb string) {
	for _, step := range steps {
		e.say("%s %s", verb, step.What)
		for _, sql := range step.SQL {
			e.say("    %s", indented(sql))
		}
		for _, sql := range step.Undo {
			e.say("  undo: %s", indented(sql))
		}
	}
}

// tellSetup tells a person what a set-up made, and what else there is to know of it.
func (e *environment) tellSetup(done setup.Report) {
	e.tellWarnings(done.Warnings)
	e.tellSteps(done.Steps, "made")
	e.tellOthers(done.Others)
}

// tellWarnings tells what somebody should know of a set-up, once: it is tried again where only one pipeline cannot
// work.
func (e *environment) tellWarnings(warnings []string) {
	for _, warning := range warnings {
		if !slices.Contains(e.warned, warning) {
			e.say("warning: %s", warning)
			e.warned = append(e.warned, warning)
		}
	}
}
