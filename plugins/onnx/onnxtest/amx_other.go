//go:build !linux || !amd64

package onnxtest

// AMX returns false.
func AMX() bool { return false }

// HideAMX does nothing: there is no AMX.
func HideAMX() error { return nil }
