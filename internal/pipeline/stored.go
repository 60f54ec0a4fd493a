package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// types are the types of destinations, in the order in which people are told of them. A new one is a file of its own,
// and its name here.
var types = []*vectorType{&singleVector, &halfVector, &bitVector, &sparseVector}

func (s Stored) is() *vectorType {
	for _, t := range types {
		if t.name == s {
			return t
		}
	}
	return types[0]
}

// StoredTypes returns the names of all types.
func StoredTypes() []string {
	return lists.Map(types, func(t *vectorType) string { return string(t.name) })
}

// StoredFor returns the type that keeps all that a model gives.
func StoredFor(sparse bool) Stored {
	if sparse {
		return StoredSparse
	}
	return StoredVector
}

// Name returns the type's name.
func (s Stored) Name() string { return string(s.is().name) }

// Takes reports whether vectors of a sparse model, or of a dense one, can be kept.
func (s Stored) Takes(sparse bool) bool { return s.is().sparse == sparse }

// Pgvector returns the version of the extension that the type needs; "": it needs none.
func (s Stored) Pgvector() string { return s.is().pgvector }

// OID returns the number of a type of the server's own; 0: it is the extension's.
func (s Stored) OID() uint32 { return s.is().oid }

// Widest returns how many dimensions a stored vector may have.
func (s Stored) Widest() int { return s.is().widest }

// Indexable returns the widest vectors for which pgvector builds an HNSW index.
func (s Stored) Indexable() int { return s.is().indexable }

// Bytes returns how many bytes so many numbers take.
func (s Stored) Bytes(numbers int) int64 { return (int64(numbers)*int64(s.is().bits) + 7) / 8 }

// OperatorClass returns the operator class of an HNSW index that fits the distance we search by.
func (s Stored) OperatorClass() string { return s.is().class }

// Metric names that distance.
func (s Stored) Metric() string { return s.is().metric }

// Column returns the type with its width, as a column is defined; extension is the schema of pgvector, quoted.
func (s Stored) Column(extension string, dims int) string {
	return strings.NewReplacer("{pgvector}", extension, "{dims}", strconv.Itoa(dims)).Replace(s.is().column)
}

// Lossy reports whether a stored vector is less than the model gave, so that it cannot stand in for it elsewhere.
func (s Stored) Lossy() bool { return s.is().canonical != nil }

// Hash is the short hash of a vector as it is stored; nil stands for no vector.
func (s Stored) Hash(vector []float32) [VectorHashSize]byte { return VectorHash(s.Canonical(vector)) }

// Canonical returns what is stored of a vector: its numbers in half precision, or 1 and 0.
func (s Stored) Canonical(vector []float32) []float32 { return each(vector, s.is().canonical) }

// Given returns a vector of which just this is stored: what Canonical returned, as it may be sent again.
func (s Stored) Given(canonical []float32) []float32 { return each(canonical, s.is().given) }

// each returns f of each number of a vector; without f the vector, and nil for none.
func each(vector []float32, f func(x float32) float32) []float32 {
	if f == nil || vector == nil {
		return vector
	}
	return lists.Map(vector, f)
}

// ParseText reads a stored vector as Postgres prints it: [1,2.5], 0110 or {3:1,9:2.5}/30522.
func (s Stored) ParseText(text []byte) ([]float32, error) { return s.is().parseText(text) }

// ParseBinary reads a stored vector as Postgres sends it in binary.
func (s Stored) ParseBinary(b []byte) ([]float32, error) {
	vector, ok := s.is().parseBinary(b)
	if !ok {
		return nil, fmt.Errorf("a stored %s of %d bytes", s.Name(), len(b))
	}
	return vector, nil
}

// NeedPgvector reports whether one of the destinations that are asked for cannot be without the extension, or none is
// asked for yet.
func NeedPgvector(specs []Spec) bool {
	return len(specs) == 0 || slices.ContainsFunc(specs, func(s Spec) bool { return s.IntoType.Pgvector() != "" })
}

// VectorType returns the type in which vectors travel, ready for a cast: "public"."vector".
func (p *Pipeline) VectorType() string { return p.sql(p.Stored.is().travels) }

// Parameter returns vectors as an array of that type.
func (p *Pipeline) Parameter(vectors [][]float32) any { return p.Stored.is().send(vectors, p.Dims) }

// ToStored returns the SQL that turns an expression of the type that travels into what is stored.
func (p *Pipeline) ToStored(vector string) string {
	return p.sql(p.Stored.is().kept, "{given}", vector)
}

// SameVector returns the SQL that compares what is stored with what is to be stored of an expression of the type that
// travels.
func (p *Pipeline) SameVector(stored, vector string) string {
	schema := p.Extension
	if p.Stored.OID() != 0 {
		schema = "pg_catalog"
	}
	return stored + " OPERATOR(" + schema + ".=) " + p.ToStored(vector)
}

// Distance returns the SQL of the distance we search by, between what is stored and an expression of the type that
// travels.
func (p *Pipeline) Distance(stored, vector string) string {
	return p.sql(p.Stored.is().distance, "{stored}", stored, "{kept}", p.ToStored(vector))
}

// Between returns the SQL of the distance we search by, between two vectors as they are stored.
func (p *Pipeline) Between(a, b string) string {
	return p.sql(p.Stored.is().distance, "{stored}", a, "{kept}", b)
}

func (p *Pipeline) sql(text string, values ...string) string {
	return strings.NewReplacer(append(values, "{pgvector}", p.Extension)...).Replace(text)
}
