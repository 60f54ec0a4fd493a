package main

import "fmt"

// abandoned is the panic value of a failed part, which try turns into an error. place.close ends what the part has
// started.
type abandoned struct{ error }

// check ends the part on an error. Call it only from the part's goroutine.
func check(err error) {
	if err != nil {
		panic(abandoned{err})
	}
}

// must is check for a call that returns something.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// during adds what was being done to the error of a failed part. Defer it.
func during(format string, args ...any) {
	switch why := recover().(type) {
	case nil:
	case abandoned:
		panic(abandoned{fmt.Errorf(format+": %w", append(args, why.error)...)})
	default:
		panic(why)
	}
}

// try runs f and returns the error of check.
func try(f func()) (err error) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case abandoned:
			err = why.error
		default:
			panic(why)
		}
	}()
	f()
	return nil
}
