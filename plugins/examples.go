// Package plugins holds the sources of the example for authors in Go, of which plugins new makes a project: the one
// is the other.
package plugins

import "embed"

// GoExample holds the plugin of sdk/example and its test. Its name, "example", occurs as a whole string and after
// "embedsidecar-".
//
//go:embed sdk/example/main.go sdk/example/main_test.go
var GoExample embed.FS
