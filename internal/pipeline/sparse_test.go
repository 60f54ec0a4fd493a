package pipeline

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
)

func TestSparse_IsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	s := Sparse{Dims: 30522, Pairs: []float32{0, 0.5, 41, -2, 30521, 1e-7}}
	const text = "{1:0.5,42:-2,30522:1e-07}/30522"
	if got := string(s.AppendText(nil)); got != text {
		t.Errorf("written as %s, want %s", got, text)
	}
	parsed, err := StoredSparse.ParseText([]byte(text))
	if err != nil || !slices.Equal(parsed, s.Pairs) {
		t.Errorf("%s is read as %v, %v", text, parsed, err)
	}
	raw, err := s.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err = StoredSparse.ParseBinary(raw); err != nil || !slices.Equal(parsed, s.Pairs) {
		t.Errorf("read as %v, %v", parsed, err)
	}
	if StoredSparse.Hash(s.Pairs) != VectorHash(parsed) || StoredSparse.Hash(nil) != VectorHash(nil) {
		t.Error("what is hashed is not what is stored")
	}
	if none, err := StoredSparse.ParseText([]byte("{}/5")); err != nil || none == nil || len(none) != 0 {
		t.Errorf("a vector of zeros alone: %v, %v", none, err)
	}
}

func TestSparse_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, pairs := range [][]float32{nil, {1}, {5, 1}, {2, 1, 2, 1}, {1, 0}} {
		if raw, err := (Sparse{Dims: 5, Pairs: pairs}).AppendBinary(nil); err == nil {
			t.Errorf("%v is sent as %x", pairs, raw)
		}
	}
	for _, text := range []string{"", "{", "{}", "[1]/3", "{0:1}/3", "{1}/3", "{1:x}/3", "{-1:1}/3"} {
		if pairs, err := StoredSparse.ParseText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, pairs)
		}
	}
}

func TestStored_TakesWhatFits(t *testing.T) {
	t.Parallel()
	for stored, sparse := range map[Stored]bool{
		"": false, StoredVector: false, StoredHalfvec: false, StoredBit: false,
		StoredSparse: true,
	} {
		if stored.Takes(sparse) == stored.Takes(!sparse) || !stored.Takes(sparse) {
			t.Errorf("%s takes sparse vectors: %t", stored.Name(), stored.Takes(true))
		}
	}
	p := Pipeline{Fingerprint: "f", Dims: 3, Form: Form{Stored: StoredSparse}}
	d := embed.Description{Fingerprint: "f", Dims: 3, Sparse: true}
	if !p.MadeBy(d) {
		t.Error("its own model is another one")
	}
	for _, edit := range []func(d *embed.Description){
		func(d *embed.Description) { d.Sparse = false }, func(d *embed.Description) { d.Dims++ },
		func(d *embed.Description) { d.Fingerprint = "g" },
	} {
		other := d
		if edit(&other); p.MadeBy(other) {
			t.Errorf("%+v is the same model", other)
		}
	}
}
