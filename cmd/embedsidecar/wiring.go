package main

import "fmt"

// notWired is what a command answers whose parts are not joined yet.
func notWired(command string) error {
	return fmt.Errorf("%s is not wired in this build", command)
}
