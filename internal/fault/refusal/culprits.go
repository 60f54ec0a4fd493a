package refusal

import (
	"errors"
	"fmt"
	"strings"
)

// PipelineError says that the server refused a step that is for some pipelines alone.
type PipelineError struct {
	Pipelines []string
	Err       error
}

func (e *PipelineError) Error() string {
	return fmt.Sprintf("pipeline %s: %s", strings.Join(e.Pipelines, ", "), e.Err)
}

// Unwrap returns what the server said.
func (e *PipelineError) Unwrap() error { return e.Err }

// Culprits returns what of an error concerns which pipelines, by their names; what concerns all of them is left out.
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
	switch e := err.(type) { //nolint:errorlint // each that it is made of, not the first that fits
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			collect(found, one)
		}
	case interface{ Unwrap() error }:
		collect(found, e.Unwrap())
	}
}

// concerned returns the pipelines that one error is about, whatever is inside of it.
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
