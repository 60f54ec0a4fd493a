package setup_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
)

// TestP5_LockedTablesHoldUpNoStart: whoever locks tables of some pipelines while a sidecar starts delays these alone.
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
			specs, locks := []pipeline.Spec{side()}, ""
			for i := range 2 {
				table := fmt.Sprintf("locked%d", i)
				b.MustExec("CREATE TABLE " + table + " (LIKE docs INCLUDING ALL)")
				s := side()
				s.Name, s.Table, s.IntoTable = table, table, table+"_embedding"
				if name == "expression" {
					alter(&s)
				}
				specs = append(specs, s)
				locks += "LOCK TABLE " + table + " IN ACCESS EXCLUSIVE MODE; "
			}
			o := b.options(b.SlotName(), specs...)
			if name == "new" {
				o.Specs = specs[:1]
			}
			b.init(o)
			o.Specs = specs
			if name == "changed" {
				for i := range o.Specs[1:] {
					alter(&o.Specs[i+1])
				}
			}
			o.Starting = true
			b.hold(locks)
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
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("it took %s and %d passes", took, passes+1)
			}
		})
	}
}
