package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// types are the types of destinations, in the order of messages. A new one needs a file of its own and an entry here.
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

// StoredFor returns the type that stores a model's vectors without loss.
func StoredFor(sparse bool) Stored {
	if sparse {
		return StoredSparse
	}
	return StoredVector
}

// Name returns the type's name.
func (s Stored) Name() string { return string(s.is().name) }

// Takes reports whether the type can store vectors of a sparse, or of a dense, model.
func (s Stored) Takes(sparse bool) bool { return s.is().sparse == sparse }

// Pgvector returns the version of the extension that the type needs; "": none.
func (s Stored) Pgvector() string { return s.is().pgvector }

// OID returns the OID of a built-in type; 0: it is the extension's.
func (s Stored) OID() uint32 { return s.is().oid }

// Widest returns the maximum number of dimensions.
func (s Stored) Widest() int { return s.is().widest }

// Indexable returns the maximum number of dimensions for pgvector's HNSW index.
func (s Stored) Indexable() int { return s.is().indexable }

// Bytes returns the size of so many numbers in bytes.
func (s Stored) Bytes(numbers int) int64 { return (int64(numbers)*int64(s.is().bits) + 7) / 8 }

// OperatorClass returns the operator class of an HNSW index for the distance of searches.
func (s Stored) OperatorClass() string { return s.is().class }

// Metric names that distance.
func (s Stored) Metric() string { return s.is().metric }

// Column returns the type with its width for a column definition; extension is the quoted schema of pgvector.
func (s Stored) Column(extension string, dims int) string {
	return strings.NewReplacer("{pgvector}", extension, "{dims}", strconv.Itoa(dims)).Replace(s.is().column)
}

// Lossy reports whether a stored vector has less information than the model's, so that it cannot be reused elsewhere.
func (s Stored) Lossy() bool { return s.is().canonical != nil }

// Hash is the short hash of a vector as stored; nil means no vector.
func (s Stored) Hash(vector []float32) [VectorHashSize]byte { return VectorHash(s.Canonical(vector)) }

// Canonical returns a vector as stored: its numbers in half precision, or 1 and 0.
func (s Stored) Canonical(vector []float32) []float32 { return each(vector, s.is().canonical) }

// Given returns a vector that is stored as the given canonical one, for sending it again.
func (s Stored) Given(canonical []float32) []float32 { return each(canonical, s.is().given) }

// each applies f to each number of a vector; without f it returns the vector.
func each(vector []float32, f func(x float32) float32) []float32 {
	if f == nil || vector == nil {
		return vector
	}
	return lists.Map(vector, f)
}

// ParseText reads a stored vector in text format: [1,2.5], 0110 or {3:1,9:2.5}/30522.
func (s Stored) ParseText(text []byte) ([]float32, error) { return s.is().parseText(text) }

// ParseBinary reads a stored vector in binary format.
func (s Stored) ParseBinary(b []byte) ([]float32, error) {
	vector, ok := s.is().parseBinary(b)
	if !ok {
		return nil, fmt.Errorf("a stored %s of %d bytes", s.Name(), len(b))
	}
	return vector, nil
}

// NeedPgvector reports whether a pipeline needs the extension, or there is no pipeline yet.
func NeedPgvector(specs []Spec) bool {
	return len(specs) == 0 || slices.ContainsFunc(specs, func(s Spec) bool { return s.IntoType.Pgvector() != "" })
}

// VectorType returns the type in which vectors are sent, for casts: "public"."vector".
func (p *Pipeline) VectorType() string { return p.sql(p.Stored.is().travels) }

// Parameter returns vectors as an array of that type.
func (p *Pipeline) Parameter(vectors [][]float32) any { return p.Stored.is().send(vectors, p.Dims) }

// ToStored returns the SQL that converts an expression of that type to the stored type.
func (p *Pipeline) ToStored(vector string) string {
	return p.sql(p.Stored.is().kept, "{given}", vector)
}

// SameVector returns the SQL that compares a stored vector with an expression of the sent type, after conversion.
func (p *Pipeline) SameVector(stored, vector string) string {
	schema := p.Extension
	if p.Stored.OID() != 0 {
		schema = "pg_catalog"
	}
	return stored + " OPERATOR(" + schema + ".=) " + p.ToStored(vector)
}

// Distance returns the SQL of the distance of searches between a stored vector and an expression of the sent type.
func (p *Pipeline) Distance(stored, vector string) string {
	return p.sql(p.Stored.is().distance, "{stored}", stored, "{kept}", p.ToStored(vector))
}

// Between returns the SQL of the distance of searches between two stored vectors.
func (p *Pipeline) Between(a, b string) string {
	return p.sql(p.Stored.is().distance, "{stored}", a, "{kept}", b)
}

func (p *Pipeline) sql(text string, values ...string) string {
	return strings.NewReplacer(append(values, "{pgvector}", p.Extension)...).Replace(text)
}
