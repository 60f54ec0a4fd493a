package refusal

import (
	"errors"
	"fmt"
	"strings"
)

// PipelineError means that the server refused a step that concerns only some pipelines.
type PipelineError struct {
	Pipelines []string
	Err       error
}

func (e *PipelineError) Error() string {
	return fmt.Sprintf("pipeline %s: %s", strings.Join(e.Pipelines, ", "), e.Err)
}

// Unwrap returns the server's error.
func (e *PipelineError) Unwrap() error { return e.Err }

// Culprits returns the errors in err that concern individual pipelines, by name. It leaves out those that concern all.
func Culprits(err error) map[string]error {
	found := map[string]error{}
	collect(found, err)
	return found
}

func collect(found map[string]error, err error) {
	names := concerned(err)
	for _, name := range names {
		found[name] = errors.Join(found[name], err)
	}
	if len(names) > 0 {
		return
	}
	switch e := err.(type) { //nolint:errorlint // each part of it, not the first match
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			collect(found, one)
		}
	case interface{ Unwrap() error }:
		collect(found, e.Unwrap())
	}
}

// concerned returns the pipelines that one error concerns, ignoring wrapped errors.
func concerned(err error) []string {
	switch e := err.(type) { //nolint:errorlint // collect looks inside
	case *PipelineError:
		return e.Pipelines
	case *PermissionError:
		return e.Pipelines
	case *MissingError:
		return named(e.Pipeline)
	case *ConfigError:
		return named(e.Pipeline)
	}
	return nil
}

func named(pipeline string) []string {
	if pipeline == "" {
		return nil
	}
	return []string{pipeline}
}
