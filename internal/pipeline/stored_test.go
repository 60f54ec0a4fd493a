package pipeline

import (
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"
)

func TestHalf_EveryNumberIsItself(t *testing.T) {
	for h := range uint32(1 << 16) {
		x := float16.Frombits(uint16(h)).Float32()
		if math.IsNaN(float64(x)) {
			continue
		}
		if got := float16.Fromfloat32(x).Bits(); got != uint16(h) {
			t.Fatalf("half of %#04x = %g is %#04x", h, x, got)
		}
	}
}

func TestHalf_RoundsToTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := float32(rapid.Float64Range(-65504, 65504).Draw(t, "x"))
		h := float16.Fromfloat32(x).Bits()
		got := math.Abs(float64(float16.Frombits(h).Float32()) - float64(x))
		for _, other := range []uint16{h - 1, h + 1} {
			y := float64(float16.Frombits(other).Float32())
			if math.IsNaN(y) || math.IsInf(y, 0) || h&0x7fff == 0 && other&0x8000 != h&0x8000 {
				continue
			}
			d := math.Abs(y - float64(x))
			if d < got || d == got && h&1 == 1 {
				t.Fatalf("half of %g = %g, but %g is as near or nearer", x, float16.Frombits(h).Float32(), y)
			}
		}
	})
}

func TestStored_WhatIsHashedIsWhatIsStored(t *testing.T) {
	vector := []float32{0.1, -0.25, 1e-9, 0}
	for stored, text := range map[Stored]string{
		StoredVector: "[0.1,-0.25,1e-09,0]", StoredHalfvec: "[0.099975586,-0.25,0,0]", StoredBit: "1010",
	} {
		parsed, err := stored.ParseText([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if VectorHash(parsed) != stored.Hash(vector) {
			t.Errorf("%s: what is printed as %s is %v, what is kept of the vector %v", stored, text, parsed,
				stored.Canonical(vector))
		}
		if again := stored.Canonical(stored.Given(parsed)); !slices.Equal(again, parsed) {
			t.Errorf("%s: given again, %v becomes %v", stored, parsed, again)
		}
	}
}

// New types must define everything. Only an index is optional.
func TestStored_EachTypeSaysAllThatIsAsked(t *testing.T) {
	t.Parallel()
	blank := regexp.MustCompile(`\{[a-z]+\}`) // an unfilled placeholder
	for _, of := range types {
		p := Pipeline{Form: Form{Stored: of.name}, Extension: `"public"`, Dims: 3}
		for what, sql := range map[string]string{
			"column": of.name.Column(p.Extension, p.Dims), "travels": p.VectorType(), "kept": p.ToStored("$1"),
			"distance": p.Distance("v", "$1"), "metric": of.metric,
		} {
			if sql == "" || blank.MatchString(sql) {
				t.Errorf("%s: %s is %q", of.name, what, sql)
			}
		}
		if of.bits == 0 || of.widest == 0 || of.send == nil || of.parseText == nil || of.parseBinary == nil {
			t.Errorf("%s: what is stored cannot be sent, read or measured", of.name)
		}
		if of.canonical == nil && of.given != nil {
			t.Errorf("%s: nothing is lost of a vector, and another one is to be sent again", of.name)
		}
	}
}

func FuzzStored_ParseBinary(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0x3c, 0}, byte(1))
	f.Add([]byte{0, 0, 0, 9, 0xff, 0x80}, byte(2))
	f.Add([]byte{0, 1, 0, 0, 0x3f, 0x80, 0, 0}, byte(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, byte(2))
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0x3f, 0x80, 0, 0}, byte(3))
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		stored := []Stored{StoredVector, StoredHalfvec, StoredBit, StoredSparse}[kind%4]
		vector, err := stored.ParseBinary(data)
		if err == nil && len(vector) > 8*len(data) {
			t.Errorf("%d numbers of %d bytes", len(vector), len(data))
		}
	})
}
