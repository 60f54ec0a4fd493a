package app

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// The pipelines of a file with a pattern of schemas have no table yet, so they are not among those to choose from.
func TestAdopt_ResumesWhatTheFileSays(t *testing.T) {
	t.Parallel()
	c := &config.Config{Pipelines: []pipeline.Spec{
		{Name: "of_tenants", Table: "docs", IntoTable: "docs_embedding"},
		{Name: "notes", Schema: "public", Table: "notes", IntoColumn: "embedding", Enabled: true},
		{Name: "later", Schema: "public", Table: "later", IntoColumn: "embedding"},
	}}
	for name, want := range map[string]bool{"notes": true, "later": false} {
		spec, err := chosen(c, nil, &AdoptOptions{Pipeline: name})
		if err != nil || spec.Name != name || spec.Enabled != want {
			t.Errorf("%s: it is %s, enabled %t, error %v", name, spec.Name, spec.Enabled, err)
		}
	}
}
