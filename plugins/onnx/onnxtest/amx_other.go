//go:build !linux || !amd64

package onnxtest

// AMX reports that there is none.
func AMX() bool { return false }

// HideAMX does nothing: there is no AMX.
func HideAMX() error { return nil }
