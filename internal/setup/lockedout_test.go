package setup_test

import (
	"slices"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
)

// TestP5_LockedTablesHoldUpNoStart: a sidecar starts while the table of a pipeline is locked. The others start.
func TestP5_LockedTablesHoldUpNoStart(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(s *pipeline.Spec){
		"columns":    func(*pipeline.Spec) {},
		"expression": func(s *pipeline.Spec) { s.Columns, s.Text = nil, "lower(title)" },
		"changed":    func(s *pipeline.Spec) { s.Columns = []string{"title"} },
		"new":        func(*pipeline.Spec) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			b.MustExec("CREATE TABLE locked (LIKE docs INCLUDING ALL)")
			of := side()
			of.Name, of.Table, of.IntoTable = "locked", "locked", "locked_embedding"
			if name == "expression" {
				alter(&of)
			}
			specs := []pipeline.Spec{side(), of}
			o := b.options(b.SlotName(), specs...)
			if name == "new" {
				o.Specs = specs[:1]
			}
			b.init(o)
			o.Specs = specs
			if name == "changed" {
				alter(&o.Specs[1])
			}
			o.Starting = true
			b.hold("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
			begun, passes := time.Now(), 0
			for ; ; passes++ { // as the sidecar does
				_, err := setup.Init(t.Context(), o)
				sick := refusal.Culprits(err)
				if err == nil {
					break
				}
				if len(sick) == 0 || sick["side"] != nil {
					t.Fatalf("the others are held up: %v", err)
				}
				o.Specs = slices.DeleteFunc(slices.Clone(o.Specs), func(s pipeline.Spec) bool { return sick[s.Name] != nil })
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("it took %s and %d passes", took, passes+1)
			}
		})
	}
}
