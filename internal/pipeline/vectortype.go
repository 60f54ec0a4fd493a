package pipeline

// Stored is the type in which a destination keeps vectors; the empty one means StoredVector. What is hashed, compared
// and marked is what is stored, not what was given. Vectors of a sparse model are pairs (embed.Pairs), and are kept as
// they are.
type Stored string

// vectorType is all that anybody has to know of such a type. In its SQL {pgvector} stands for the schema of the
// extension.
type vectorType struct {
	name     Stored
	pgvector string // the version of the extension that it needs; "": it needs none
	oid      uint32 // of a type of the server's own; 0: it is the extension's
	sparse   bool   // it keeps vectors of sparse models, and no others

	bits      int // that a number takes
	widest    int // dimensions that it holds
	indexable int // dimensions that an HNSW index over it takes

	column   string // the type as a column of {dims} is defined
	travels  string // the type in which vectors travel to the server, ready for a cast
	kept     string // what is stored of a vector that has travelled, {given}
	distance string // the distance that we search by, between a vector that is {stored} and one that is as if {kept}
	metric   string // what that is called
	class    string // the operator class of an index that fits it

	canonical func(given float32) float32  // what is stored of a number; nil: all of it
	given     func(stored float32) float32 // a number of which just this is stored; nil: the same

	send        func(vectors [][]float32, dims int) any    // as the array of what travels
	parseText   func(text []byte) ([]float32, error)       // as the server prints it
	parseBinary func(b []byte) (vector []float32, ok bool) // as the server sends it in binary
}
