//go:build !linux

// Package private hides this process's data from other processes.
package private

// Keep does nothing: other systems let only a debugger read another process.
func Keep() error { return nil }
