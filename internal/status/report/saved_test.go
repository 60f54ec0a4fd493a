package report

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func TestSaved(t *testing.T) {
	t.Parallel()
	p := Pipeline{Name: "docs", Tokens: 4000, Saved: Saved{Embedded: 100, Reused: 20, Unchanged: 5}}
	p.Saved.reckon(p.Tokens)
	if p.Saved.Tokens != 1000 {
		t.Errorf("%d tokens saved, want 40 for each of 25 rows", p.Saved.Tokens)
	}
	const line = "docs: 100 texts embedded; 20 texts had a vector already, 5 rows had not changed: about 1000 tokens saved"
	if got := p.SavedLine(); got != line {
		t.Errorf("%q", got)
	}
	p.Priced(pipeline.Price{})
	if p.Saved.Price != nil || p.Saved.Spent != nil {
		t.Error("a price that nobody has named")
	}
	p.Priced(pipeline.Price{Million: 20, Currency: "EUR"})
	if got := p.SavedLine(); got != line+", worth 0.02 EUR; 0.08 EUR spent" {
		t.Errorf("%q", got)
	}
	if got := (&Pipeline{Saved: Saved{Embedded: 7}}).SavedLine() + (&Slot{Name: "s"}).SavedLine(); got != "" {
		t.Errorf("%q where nothing was saved", got)
	}
	if got := (&Slot{Name: "s", ChangesUnchanged: 3, ChangesJoined: 1}).SavedLine(); got != "slot s: 3 changes touched no text, 1 joined one that waited" {
		t.Errorf("%q", got)
	}
}
