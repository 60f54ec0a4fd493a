//go:build !(linux && amd64)

package model_test

// hideAMX does nothing: there is no AMX.
func hideAMX() error { return nil }
