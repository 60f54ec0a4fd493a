package pipeline

// Stored is the type of a destination's vectors; "" means StoredVector. Hashes and comparisons use the vectors as
// stored, not as the model returned them. Vectors of a sparse model are pairs (embed.Pairs), and are stored unchanged.
type Stored string

// vectorType defines such a type. In its SQL, {pgvector} is the schema of the extension.
type vectorType struct {
	name     Stored
	pgvector string // the required version of the extension; "": none
	oid      uint32 // of a built-in type; 0: it is the extension's
	sparse   bool   // it stores only vectors of sparse models

	bits      int // per number
	widest    int // maximum number of dimensions
	indexable int // maximum number of dimensions of an HNSW index

	column   string // the type in a definition of a column of {dims}
	travels  string // the type in which vectors are sent, for casts
	kept     string // the stored value of a sent vector, {given}
	distance string // the distance of searches between a vector as {stored} and a converted one, {kept}
	metric   string // the name of that distance
	class    string // the operator class of an index for it

	canonical func(given float32) float32  // a number as stored; nil: unchanged
	given     func(stored float32) float32 // a number that is stored as the given one; nil: unchanged

	send        func(vectors [][]float32, dims int) any    // as an array of the sent type
	parseText   func(text []byte) ([]float32, error)       // the server's text format
	parseBinary func(b []byte) (vector []float32, ok bool) // the server's binary format
}
