// Package plugins embeds the sources of the Go example, from which `plugins new` makes a project.
package plugins

import "embed"

// GoExample holds the plugin of sdk/example and its test. Its name occurs as the string "example" and after
// "embedsidecar-".
//
//go:embed sdk/example/main.go sdk/example/main_test.go
var GoExample embed.FS
