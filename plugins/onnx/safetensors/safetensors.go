// Package safetensors reads tensors from safetensors files. It needs no more memory than the requested numbers, and
// validates all metadata of the file.
package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/x448/float16"
)

const (
	maxHeaderBytes = 16 << 20
	lengthBytes    = 8 // of the header's length at the start of the file
)

// A Tensor is numbers and their shape. Integers of 32 and 64 bits are Ints, all others Floats.
type Tensor struct {
	Name   string
	Type   string // as the file has it: F32
	Shape  []int
	Floats []float32
	Ints   []int64
}

type entry struct {
	Type    string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// widths are the bytes of a number, by type.
var widths = map[string]int64{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "I32": 4, "I64": 8}

// Read returns the named tensors that exist in the file. size is the file's size in bytes.
func Read(file io.Reader, size int64, names ...string) (map[string]*Tensor, error) {
	in := bufio.NewReaderSize(file, 1<<16)
	wanted, err := readHeader(in, size, names)
	if err != nil {
		return nil, err
	}
	found, at := map[string]*Tensor{}, int64(0)
	for _, t := range wanted {
		if t.Offsets[0] < at {
			return nil, fmt.Errorf("tensor %s overlaps another", t.name)
		}
		if _, err := io.CopyN(io.Discard, in, t.Offsets[0]-at); err != nil {
			return nil, fmt.Errorf("the file ends before tensor %s: %w", t.name, err)
		}
		if found[t.name], err = t.read(in); err != nil {
			return nil, err
		}
		at = t.Offsets[1]
	}
	_, err = io.Copy(io.Discard, in) // read to the end, for callers that verify the content
	return found, err
}

type named struct {
	entry

	name string
}

// readHeader returns the metadata of the named tensors, in the order of the file.
func readHeader(in io.Reader, size int64, names []string) ([]named, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, errors.New("it is no safetensors file: it ends within its first 8 bytes")
	}
	header := binary.LittleEndian.Uint64(length[:])
	switch {
	case size < lengthBytes || header > uint64(size-lengthBytes):
		return nil, fmt.Errorf("its header is said to have %d bytes, and the whole file has %d: it is not whole, or no safetensors file",
			header, size)
	case header > maxHeaderBytes:
		return nil, fmt.Errorf("its header has %d bytes, and at most %d are read", header, maxHeaderBytes)
	}
	data := make([]byte, header)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, fmt.Errorf("the file ends within its header: %w", err)
	}
	tensors := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &tensors); err != nil {
		return nil, fmt.Errorf("parse its header: %w", err)
	}
	var list []named
	for _, name := range names {
		raw, ok := tensors[name]
		if !ok {
			continue
		}
		t := named{name: name}
		if err := json.Unmarshal(raw, &t.entry); err != nil {
			return nil, fmt.Errorf("tensor %s: parse the header: %w", name, err)
		}
		if err := t.check(size - lengthBytes - int64(header)); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b named) int { return cmp.Compare(a.Offsets[0], b.Offsets[0]) })
	return list, nil
}

// check refuses a tensor with invalid metadata, for a body of this size.
func (t *named) check(body int64) error {
	width := widths[t.Type]
	if width == 0 {
		return fmt.Errorf("tensor %s is of the type %q, which is not read", t.name, t.Type)
	}
	bytes := width
	for _, n := range t.Shape {
		if n < 1 || int64(n) > body/bytes {
			return fmt.Errorf("tensor %s has the shape %d, which does not fit into the %d bytes of the file: it is not whole", t.name,
				t.Shape, body)
		}
		bytes *= int64(n)
	}
	if begin, end := t.Offsets[0], t.Offsets[1]; begin < 0 || end < begin || end > body || end-begin != bytes {
		return fmt.Errorf("tensor %s of shape %d and type %s is said to lie at bytes %d of the %d: that is not its size, or the file is not whole",
			t.name, t.Shape, t.Type, t.Offsets, body)
	}
	return nil
}

func (t *named) read(in io.Reader) (*Tensor, error) {
	out := &Tensor{Name: t.name, Type: t.Type, Shape: t.Shape}
	width := widths[t.Type]
	count := int((t.Offsets[1] - t.Offsets[0]) / width)
	whole := t.Type == "I32" || t.Type == "I64"
	if whole {
		out.Ints = make([]int64, count)
	} else {
		out.Floats = make([]float32, count)
	}
	buffer := make([]byte, 1<<13*width)
	for done := 0; done < count; {
		n := min(count-done, len(buffer)/int(width))
		raw := buffer[:n*int(width)]
		if _, err := io.ReadFull(in, raw); err != nil {
			return nil, fmt.Errorf("the file ends within tensor %s: %w", t.name, err)
		}
		if whole {
			integers(t.Type, raw, out.Ints[done:done+n])
		} else if i := numbers(t.Type, raw, out.Floats[done:done+n]); i >= 0 {
			return nil, fmt.Errorf("number %d of tensor %s is not finite", done+i, t.name)
		}
		done += n
	}
	return out, nil
}

func integers(kind string, raw []byte, into []int64) {
	for i := range into {
		if kind == "I32" {
			into[i] = int64(int32(binary.LittleEndian.Uint32(raw[i*4:])))
		} else {
			into[i] = int64(binary.LittleEndian.Uint64(raw[i*8:]))
		}
	}
}

// numbers reads numbers and returns the index of one that is not finite, or -1.
func numbers(kind string, raw []byte, into []float32) int {
	for i := range into {
		var x float32
		switch kind {
		case "F64":
			x = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[i*8:])))
		case "F32":
			x = math.Float32frombits(binary.LittleEndian.Uint32(raw[i*4:]))
		case "BF16":
			x = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[i*2:])) << 16)
		case "F16":
			x = float16.Frombits(binary.LittleEndian.Uint16(raw[i*2:])).Float32()
		default:
			x = float32(int8(raw[i]))
		}
		if x-x != 0 { // Inf and NaN
			return i
		}
		into[i] = x
	}
	return -1
}

// Write writes tensors of 32-bit numbers.
func Write(to io.Writer, tensors ...*Tensor) error {
	header, at := map[string]entry{}, int64(0)
	for _, t := range tensors {
		end := at + 4*int64(len(t.Floats))
		header[t.Name] = entry{"F32", t.Shape, [2]int64{at, end}}
		at = end
	}
	data, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(data)%lengthBytes != 0 { // numbers begin at a whole word
		data = append(data, ' ')
	}
	out := bufio.NewWriter(to)
	_, err = out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(data))), data...))
	for _, t := range tensors {
		err = errors.Join(err, binary.Write(out, binary.LittleEndian, t.Floats))
	}
	return errors.Join(err, out.Flush())
}
