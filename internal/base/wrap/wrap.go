// Package wrap adds context to errors.
package wrap

import "fmt"

// Errorf returns an error with a context, by format and args, before err; nil if err is nil.
func Errorf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
