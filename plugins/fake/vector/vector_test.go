package vector

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Test oracles and stored test data depend on the definition: these bits never change.
func TestOf_KeepsItsBits(t *testing.T) {
	want := []uint32{0xbf31df5f, 0x3b37571a, 0xbf3258be, 0xbe36d60e}
	var got []uint32
	for _, x := range Of("hello", 4) {
		got = append(got, math.Float32bits(x))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Of(\"hello\", 4) (-want +got):\n%s", diff)
	}
}

func TestOf_IsUnitAndDiffers(t *testing.T) {
	dot := func(a, b []float32) (s float64) {
		for i := range a {
			s += float64(a[i]) * float64(b[i])
		}
		return s
	}
	a, b := Of("one", DefaultDims), Of("two", DefaultDims)
	if got := dot(a, a); math.Abs(got-1) > 1e-5 {
		t.Errorf("length squared = %v, want 1", got)
	}
	if got := dot(a, b); math.Abs(got) > 0.3 {
		t.Errorf("cosine of two texts = %v, want about 0", got)
	}
	for _, dims := range []int{1, 2, 16000} {
		if v := Of("", dims); len(v) != dims || math.Abs(dot(v, v)-1) > 1e-5 {
			t.Errorf("Of(\"\", %d) has %d dims and length squared %v", dims, len(v), dot(v, v))
		}
	}
}

func TestEmpty(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, " \t\n\u00a0\u2003": true, "x": false, " x ": false,
		"\u200b": false,
	} {
		if got := Empty(text); got != want {
			t.Errorf("Empty(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestReadCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls")
	if calls, err := ReadCalls(path); err != nil || calls != nil {
		t.Fatalf("missing file: %v, %v", calls, err)
	}
	want := []Call{
		{Kind: "document", Hashes: []string{Hash("a"), Hash("b")}},
		{Kind: "query", Hashes: []string{Hash("a")}},
	}
	var b []byte
	for _, c := range want {
		b = c.AppendLine(b)
	}
	b = append(b, "document 2 0123"...) // cut off by a kill
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCalls(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{Hash("a"): 2, Hash("b"): 1}, Counts(got)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(path, []byte("document 3 0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCalls(path); err == nil {
		t.Error("a line with a wrong count was accepted")
	}
}

func BenchmarkOf384(b *testing.B) {
	v := make([]float32, DefaultDims)
	for b.Loop() {
		Into(v, "a text of a usual length, which is to say one or two lines of a description, about a hundred bytes or so")
	}
}
