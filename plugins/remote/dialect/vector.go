package dialect

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strconv"
)

// Vector is decoded from a list of numbers, or from base64 of little-endian single precision numbers.
type Vector []float32

// errVector does not quote the answer, which may contain a text.
var errVector = errors.New("a vector is neither a list of numbers nor base64 of single precision numbers")

// UnmarshalJSON implements json.Unmarshaler. The data is one valid JSON value.
func (v *Vector) UnmarshalJSON(data []byte) error {
	switch {
	case data[0] == '"':
		return v.fromBase64(data)
	case data[0] == '[':
		return v.fromList(data)
	case string(data) == "null":
		*v = nil
		return nil
	}
	return errVector
}

func (v *Vector) fromBase64(data []byte) error {
	if bytes.IndexByte(data, '\\') >= 0 { // "\/" is legal JSON for a slash
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return errVector
		}
		data = []byte(`"` + s + `"`)
	}
	data = data[1 : len(data)-1]
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, err := base64.StdEncoding.Decode(raw, data)
	if err != nil || n%4 != 0 {
		return errVector
	}
	out := make(Vector, n/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	*v = out
	return nil
}

// fromList parses a list by hand: reflection would dominate the time to process an answer.
func (v *Vector) fromList(data []byte) error {
	data = bytes.TrimSpace(data[1 : len(data)-1])
	if len(data) == 0 {
		*v = Vector{}
		return nil
	}
	out := make(Vector, 0, bytes.Count(data, []byte{','})+1)
	for part := range bytes.SplitSeq(data, []byte{','}) {
		part = bytes.TrimSpace(part)
		if string(part) == "null" {
			out = append(out, float32(math.NaN()))
			continue
		}
		x, err := strconv.ParseFloat(string(part), 32)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return errVector
		}
		out = append(out, float32(x)) // infinite if out of float32's range
	}
	*v = out
	return nil
}

// count is a number of tokens. Vectors do not depend on it, so an invalid one is 0.
type count int

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(data []byte) error {
	x, err := strconv.ParseFloat(string(data), 64)
	*c = 0
	if err == nil && x > 0 && x < math.MaxInt32 {
		*c = count(x)
	}
	return nil
}

// place is a whole number in any notation: 1, 1.0, 1e0.
type place int

// UnmarshalJSON implements json.Unmarshaler.
func (p *place) UnmarshalJSON(data []byte) error {
	x, err := strconv.ParseFloat(string(data), 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > math.MaxInt32 {
		return errors.New("an index is not a whole number")
	}
	*p = place(x)
	return nil
}
