package main

import "fmt"

// A part is like a test: what fails in its middle ends it, by a panic that try turns into its error. What it has begun
// by then is ended by place.close.
type abandoned struct{ error }

// check ends the part where something has failed. Only the goroutine of the part may call it.
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

// during says what was being done when a part was ended in its middle. It is deferred.
func during(format string, args ...any) {
	switch why := recover().(type) {
	case nil:
	case abandoned:
		panic(abandoned{fmt.Errorf(format+": %w", append(args, why.error)...)})
	default:
		panic(why)
	}
}

// try runs what may be ended in its middle, and returns why it was.
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
