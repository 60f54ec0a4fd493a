// Package wrap says what was tried before an error.
package wrap

import "fmt"

// Errorf returns an error that says what was tried, by format and args, and then err; nil where err is nil.
func Errorf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
