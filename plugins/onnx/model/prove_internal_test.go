package model

import (
	"math"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// faulty computes products correctly, except that spoil changes the numbers.
type faulty struct {
	*proof

	spoil func(rows, columns, column int, x float32) float32
}

func (f faulty) run(rows int, left [][]float32) ([][]float32, error) {
	var results [][]float32
	for i, product := range f.products {
		columns := int(product.Columns)
		result := make([]float32, rows*columns)
		for at := range result {
			result[at] = f.spoil(rows, columns, at%columns, float32(f.right[i][at/columns%patterns*columns+at%columns]))
		}
		if len(left[i]) != rows*int(product.Rows) {
			panic("the left side has another size")
		}
		results = append(results, result)
	}
	return results, nil
}

func TestProof_FindsWhatIsWrong(t *testing.T) {
	shapes := []onnxfile.Product{
		{Rows: 24, Columns: 24, Elements: onnxfile.Int8s},
		{Rows: 64, Columns: 40, Elements: onnxfile.Float32},
		{Rows: 33, Columns: 5000, Elements: onnxfile.Float16},
	}
	for name, c := range map[string]struct {
		spoil func(rows, columns, column int, x float32) float32
		right bool
	}{
		"right":   {func(_, _, _ int, x float32) float32 { return x }, true},
		"rounded": {func(_, _, _ int, x float32) float32 { return x * (1 + 1e-6) }, true},
		"last columns of many rows, as with AMX": {func(rows, columns, column int, x float32) float32 {
			if rows >= 32 && columns%32 > 16 && column >= columns-columns%32 {
				return 0
			}
			return x
		}, false},
		"one row": {func(rows, _, _ int, x float32) float32 { return x * float32(min(rows, 2)) }, false},
		"the last number": {func(_, columns, column int, x float32) float32 {
			if column == columns-1 {
				return x + 1e6
			}
			return x
		}, false},
		"no numbers": {func(_, _, _ int, _ float32) float32 { return float32(math.NaN()) }, false},
	} {
		p := newProof(shapes)
		if len(p.products) != len(shapes) || p.products[2].Columns != maxProven+5000%kernelEnd {
			t.Fatalf("products %v", p.products)
		}
		wrong, err := p.compare(faulty{p, c.spoil})
		if err != nil {
			t.Fatal(err)
		}
		if (wrong == "") != c.right {
			t.Errorf("%s: got %q", name, wrong)
		}
	}
}

// Half of the fraction's bits are lost, as if a CPU multiplied in 16 bits: this must be detected.
func TestProof_TellsPrecisionsApart(t *testing.T) {
	p := newProof([]onnxfile.Product{{Rows: 384, Columns: 48, Elements: onnxfile.Float32}})
	rounded := func(x float32) float64 {
		return float64(math.Float32frombits((math.Float32bits(x) + 0x8000) &^ 0xFFFF))
	}
	right := p.right[0]
	exact := append([]float64(nil), right...)
	clear(right)
	for pattern := range patterns {
		for k := range 384 {
			for column := range 48 {
				at := 4 * (k*48 + column)
				bits := uint32(p.matrices[0][at]) | uint32(p.matrices[0][at+1])<<8 | uint32(p.matrices[0][at+2])<<16 | uint32(
					p.matrices[0][at+3])<<24
				right[pattern*48+column] += rounded(p.left[0][pattern*384+k]) * rounded(math.Float32frombits(bits))
			}
		}
	}
	same := func(_, _, _ int, x float32) float32 { return x }
	lossy := faulty{&proof{products: p.products, right: [][]float64{right}}, same}
	p.right[0] = exact
	if wrong, err := p.compare(lossy); wrong == "" || err != nil {
		t.Errorf("products of bfloat16 pass for those of float32: %v", err)
	}
}
