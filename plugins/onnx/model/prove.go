package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// KnownRight is a version of ONNX Runtime that computes correctly on all tested CPUs: that of
// tools/fetch-onnxruntime.sh.
const KnownRight = "1.31.1"

// A WrongError means that the library computes wrongly on this CPU. The library selects kernels by CPU, so it may be
// correct on other machines: ONNX Runtime 1.22 to 1.24 computes 8-bit weights wrongly only on CPUs with AMX.
type WrongError struct{ Library, What string }

func (e *WrongError) Error() string {
	return fmt.Sprintf("ONNX Runtime %s computes wrongly on this CPU: %s; use ONNX Runtime %s (tools/fetch-onnxruntime.sh), or precision fp32",
		e.Library, e.What, KnownRight)
}

// Limits of the matrices that products are tested with. Kernels repeat well below them.
const (
	maxProven = 2048
	// larger than any kernel's block of rows or columns, so the remainder equals that of the whole matrix
	kernelEnd = 64
)

// provenRows are the row counts of the left side: kernels differ for one row, less than a block of 32, whole blocks,
// and remainders.
var provenRows = []int{1, 31, 32, 67, 200}

// patterns is the number of different rows; they repeat, so that only these must be computed here.
const patterns = 3

// productRunner runs the products of a graph with row-major left sides, and returns the results.
type productRunner interface {
	run(rows int, left [][]float32) ([][]float32, error)
}

// prove multiplies by a matrix of each shape in the graph, on one thread and on all, and compares the results with its
// own.
func (n *network) prove(g *graph, o Options) (err error) {
	if n.provider != providerCPU || len(g.Products) == 0 {
		return nil // other providers' kernels do not depend on the CPU
	}
	proof := newProof(g.Products)
	counts := []int{threads(o)}
	if n.narrow != nil {
		counts = append(counts, 1)
	}
	for _, count := range counts {
		session, err := newProductSession(proof, count)
		if err != nil {
			return fmt.Errorf("prove the library: %s", withoutSource(err))
		}
		wrong, err := proof.compare(session)
		if err = errors.Join(err, session.Destroy()); err != nil {
			return fmt.Errorf("prove the library: %s", withoutSource(err))
		}
		if wrong != "" {
			return &WrongError{ort.GetVersion(), fmt.Sprintf("%s, on %d threads", wrong, count)}
		}
	}
	return nil
}

// A proof is a set of products of known matrices, with the correct results.
type proof struct {
	products []onnxfile.Product
	matrices [][]byte    // as ONNX has them
	left     [][]float32 // patterns rows for each product
	right    [][]float64 // their results
}

// newProof makes a proof of products of these shapes.
func newProof(shapes []onnxfile.Product) *proof {
	p := &proof{}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret: the same at each start
	bound := func(n int64) int64 {
		if n <= maxProven {
			return n
		}
		return maxProven + n%kernelEnd
	}
	for _, shape := range shapes {
		shape.Rows, shape.Columns = bound(shape.Rows), bound(shape.Columns)
		if shape.Rows < 2 || slices.Contains(p.products, shape) {
			continue
		}
		matrix, values := randomMatrix(random, shape)
		left := randomLeft(random, shape)
		rows, columns := int(shape.Rows), int(shape.Columns)
		right := make([]float64, patterns*columns)
		for pattern := range patterns {
			sums := right[pattern*columns : (pattern+1)*columns]
			for k := range rows {
				factor := float64(left[pattern*rows+k])
				for column, value := range values[k*columns : (k+1)*columns] {
					sums[column] += factor * float64(value)
				}
			}
		}
		p.products, p.matrices = append(p.products, shape), append(p.matrices, matrix)
		p.left, p.right = append(p.left, left), append(p.right, right)
	}
	return p
}

// randomMatrix returns a matrix in ONNX's format, and its numbers.
func randomMatrix(random *rand.Rand, p onnxfile.Product) ([]byte, []float32) {
	values := make([]float32, p.Rows*p.Columns)
	data := make([]byte, 0, 4*len(values))
	var bits uint64
	for i := range values {
		if i%4 == 0 {
			bits = random.Uint64()
		}
		part := uint16(bits)
		bits >>= 16
		switch p.Elements {
		case onnxfile.Int8s:
			one := max(int8(part), -math.MaxInt8)
			values[i], data = float32(one), append(data, byte(one))
		case onnxfile.Uint8:
			values[i], data = float32(uint8(part)), append(data, byte(part))
		case onnxfile.Float16: // ±[1,2), of which 10 bits follow the sign and the exponent
			part = part&0x83FF | 0x3C00
			values[i] = float32(1+float64(part&0x3FF)/1024) * float32(1-2*int(part>>15))
			data = binary.LittleEndian.AppendUint16(data, part)
		default: // more bits than half precision has
			values[i] = float32(int16(part)) / (1 << 14)
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(values[i]))
		}
	}
	return data, values
}

// leastLeft and mostLeft occur in each row that is quantized to 8 bits: they are 255 apart, so the scale is 1 and
// nothing is rounded.
const leastLeft, mostLeft = -100, 155

// randomLeft returns rows for the left side of a product.
func randomLeft(random *rand.Rand, p onnxfile.Product) []float32 {
	left := make([]float32, patterns*p.Rows)
	for i := range left {
		switch p.Elements {
		case onnxfile.Int8s, onnxfile.Uint8:
			left[i] = float32(leastLeft + random.IntN(mostLeft-leastLeft+1))
		case onnxfile.Float16:
			left[i] = float32(random.IntN(257)-128) / 256
		default:
			left[i] = float32(random.IntN(1<<16)-1<<15) / (1 << 14)
		}
	}
	if p.Elements == onnxfile.Int8s || p.Elements == onnxfile.Uint8 {
		for pattern := range patterns {
			left[pattern*int(p.Rows)], left[(pattern+1)*int(p.Rows)-1] = leastLeft, mostLeft
		}
	}
	return left
}

// tolerance is the allowed error of a result, relative to the largest one.
func tolerance(elements int32) float64 {
	if elements == onnxfile.Float16 {
		return 1e-2 // some CPUs add in half precision, which is what the weights are for
	}
	return 2e-5
}

// compare runs the products and describes the first wrong result, or returns "".
func (p *proof) compare(runner productRunner) (wrong string, err error) {
	for _, rows := range slices.Concat(provenRows, provenRows) { // twice: an error may depend on earlier runs
		left := make([][]float32, len(p.products))
		for i, mine := range p.left {
			width := int(p.products[i].Rows)
			for row := range rows {
				left[i] = append(left[i], mine[row%patterns*width:(row%patterns+1)*width]...)
			}
		}
		results, err := runner.run(rows, left)
		if err != nil {
			return "", err
		}
		for i, product := range p.products {
			most := 0.0
			for _, want := range p.right[i] {
				most = max(most, math.Abs(want))
			}
			columns := int(product.Columns)
			for at, got := range results[i] {
				want := p.right[i][at/columns%patterns*columns+at%columns]
				if off := math.Abs(float64(got) - want); !(off <= tolerance(product.Elements)*most) { // not a number is wrong too
					return fmt.Sprintf("%d rows by a matrix of %dx%d (%s) give %g where %g is right",
						rows, product.Rows, product.Columns, onnxfile.ElementName(product.Elements), got, want), nil
				}
			}
		}
	}
	return "", nil
}

// productSession runs a proof's products in the library.
type productSession struct {
	*ort.DynamicAdvancedSession

	products []onnxfile.Product
}

func newProductSession(p *proof, threads int) (*productSession, error) {
	options, err := sessionOptions(threads)
	if err != nil {
		return nil, err
	}
	defer func() { _ = options.Destroy() }()
	file := onnxfile.WriteProducts(p.products, func(i int) []byte { return p.matrices[i] })
	var inputs, outputs []string
	for i := range p.products {
		input, output := onnxfile.Factors(i)
		inputs, outputs = append(inputs, input), append(outputs, output)
	}
	session, err := ort.NewDynamicAdvancedSessionWithONNXData(file, inputs, outputs, options)
	if err != nil {
		return nil, err
	}
	return &productSession{session, p.products}, nil
}

func (s *productSession) run(rows int, left [][]float32) (results [][]float32, err error) {
	var inputs, outputs []ort.Value
	defer func() {
		for _, value := range slices.Concat(inputs, outputs) {
			err = errors.Join(err, value.Destroy())
		}
	}()
	for i, product := range s.products {
		result := make([]float32, rows*int(product.Columns))
		results = append(results, result)
		input, err := ort.NewTensor(ort.NewShape(int64(rows), product.Rows), left[i])
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, input)
		output, err := ort.NewTensor(ort.NewShape(int64(rows), product.Columns), result)
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, output)
	}
	return results, s.Run(inputs, outputs)
}
