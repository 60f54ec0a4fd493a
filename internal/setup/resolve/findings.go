package resolve

import (
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Findings is all that the catalogue says of a pipeline.
type Findings struct {
	Pipeline    pipeline.Pipeline
	Table       *catalog.Table
	Destination catalog.Destination
	Vector      catalog.VectorType
	Reads       []string // columns that text and filter name, generated ones too, by attribute number; nil: not known
	Looks       []string // those, and columns that the priority names; nil: not known
	Calls       []string // functions of the user's that text, filter and context call, sorted
	Joined      []Joined
	Warnings    []string
	Digest      string // of its definition as it is configured
	Unproven    bool   // nobody knows yet whether the destination holds vectors of somebody else
	Inherits    bool   // the vectors that are there become the pipeline's
}
