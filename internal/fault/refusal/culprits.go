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
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each of those that are joined
		for _, one := range several.Unwrap() {
			collect(found, one)
		}
		return
	}
	for _, name := range concerned(err) {
		found[name] = errors.Join(found[name], err)
	}
}

// concerned returns the pipelines that one error is about.
func concerned(err error) []string {
	if e, ok := errors.AsType[*PipelineError](err); ok {
		return e.Pipelines
	}
	if e, ok := errors.AsType[*PermissionError](err); ok && len(e.Pipelines) > 0 {
		return e.Pipelines
	}
	if e, ok := errors.AsType[*ConfigError](err); ok && e.Pipeline != "" {
		return []string{e.Pipeline}
	}
	if e, ok := errors.AsType[*MissingError](err); ok && e.Pipeline != "" {
		return []string{e.Pipeline}
	}
	return nil
}
