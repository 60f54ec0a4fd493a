package database

import (
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/pgvector/pgvector-go"
)

// registerVector makes a connection send and read pgvector.Vector, alone and in arrays, in binary. The numbers of the
// types come from the catalogue, since the extension's schema is seldom in our search_path.
func registerVector(m *pgtype.Map, vector, array uint32) {
	t := &pgtype.Type{Name: "vector", OID: vector, Codec: vectorCodec{}}
	m.RegisterType(t)
	m.RegisterDefaultPgType(pgvector.Vector{}, "vector")
	if array != 0 {
		m.RegisterType(&pgtype.Type{Name: "_vector", OID: array, Codec: &pgtype.ArrayCodec{ElementType: t}})
		m.RegisterDefaultPgType([]pgvector.Vector{}, "_vector")
	}
}

// vectorCodec is pgvector's type vector: uint16 dims, uint16 zero, then big-endian float32s. It differs from the
// codec that comes with pgvector-go in that a short or odd answer is an error and not a panic.
type vectorCodec struct{}

var _ pgtype.Codec = vectorCodec{}

func (vectorCodec) FormatSupported(format int16) bool {
	return format == pgtype.BinaryFormatCode || format == pgtype.TextFormatCode
}

func (vectorCodec) PreferredFormat() int16 { return pgtype.BinaryFormatCode }

func (vectorCodec) PlanEncode(_ *pgtype.Map, _ uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(pgvector.Vector); !ok {
		return nil
	}
	if format == pgtype.BinaryFormatCode {
		return encodeBinary{}
	}
	return encodeText{}
}

type encodeBinary struct{}

func (encodeBinary) Encode(value any, buf []byte) ([]byte, error) {
	v, ok := value.(pgvector.Vector)
	if !ok {
		return nil, fmt.Errorf("encode vector: unexpected %T", value)
	}
	if n := len(v.Slice()); n == 0 || n > math.MaxUint16 {
		return nil, fmt.Errorf("encode vector: width %d", n)
	}
	return v.EncodeBinary(buf)
}

type encodeText struct{}

func (encodeText) Encode(value any, buf []byte) ([]byte, error) {
	v, ok := value.(pgvector.Vector)
	if !ok {
		return nil, fmt.Errorf("encode vector: unexpected %T", value)
	}
	return append(buf, v.String()...), nil
}

func (vectorCodec) PlanScan(_ *pgtype.Map, _ uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*pgvector.Vector); !ok {
		return nil
	}
	if format == pgtype.BinaryFormatCode {
		return scanBinary{}
	}
	return scanText{}
}

type scanBinary struct{}

func (scanBinary) Scan(src []byte, target any) error {
	v, ok := target.(*pgvector.Vector)
	if !ok {
		return fmt.Errorf("scan vector: unexpected %T", target)
	}
	if src == nil {
		*v = pgvector.Vector{}
		return nil
	}
	if len(src) < 4 || len(src) != 4+4*int(binary.BigEndian.Uint16(src)) {
		return fmt.Errorf("scan vector: %d bytes are not a vector", len(src))
	}
	return v.DecodeBinary(src)
}

type scanText struct{}

func (scanText) Scan(src []byte, target any) error {
	v, ok := target.(*pgvector.Vector)
	if !ok {
		return fmt.Errorf("scan vector: unexpected %T", target)
	}
	if src == nil {
		*v = pgvector.Vector{}
		return nil
	}
	if len(src) < 2 || src[0] != '[' || src[len(src)-1] != ']' {
		return fmt.Errorf("scan vector: %d bytes are not a vector", len(src))
	}
	return v.Parse(string(src))
}

func (c vectorCodec) DecodeDatabaseSQLValue(m *pgtype.Map, oid uint32, format int16, src []byte) (driver.Value, error) {
	v, err := c.DecodeValue(m, oid, format, src)
	if v == nil || err != nil {
		return nil, err
	}
	vector, ok := v.(pgvector.Vector)
	if !ok {
		return nil, fmt.Errorf("scan vector: unexpected %T", v)
	}
	return vector.String(), nil
}

func (c vectorCodec) DecodeValue(m *pgtype.Map, oid uint32, format int16, src []byte) (any, error) {
	if src == nil {
		return nil, nil
	}
	var v pgvector.Vector
	if err := c.PlanScan(m, oid, format, &v).Scan(src, &v); err != nil {
		return nil, err
	}
	return v, nil
}
