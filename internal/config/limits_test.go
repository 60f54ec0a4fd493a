package config

import (
	"strings"
	"testing"
)

// The plugin onnx refuses more threads, and so does the configuration, before the plugin starts.
func TestLoad_ThreadsAreBounded(t *testing.T) {
	for threads, right := range map[string]bool{"256": true, "257": false, "1024": false} {
		_, _, err := Load(Source{Flags: map[string][]string{"threads": {threads}}})
		if refused := err != nil && strings.Contains(err.Error(), "threads"); refused == right {
			t.Errorf("--threads %s: got %v", threads, err)
		}
	}
}
