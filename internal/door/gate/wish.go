package gate

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Wish holds the parameters of searches besides the query and the number of rows.
type Wish struct {
	Offset int     `json:"offset,omitempty" minimum:"0" maximum:"9999" doc:"Number of rows to skip"`
	Hybrid bool    `json:"hybrid,omitempty" doc:"Search by vector and by words"`
	Filter filters `json:"filter,omitzero"`
	// a pointer, because 0 is a valid distance
	MaxDistance *float64 `json:"max_distance,omitempty" doc:"Leave out rows whose vectors are farther away"`
	FreshOnly   bool     `json:"fresh_only,omitempty" doc:"Leave out rows that are queued to be embedded again"`
	Rerank      int      `json:"rerank,omitempty" minimum:"1" maximum:"1000" doc:"Number of candidates to sort with a reranker"`
	Columns     []string `json:"columns,omitempty" doc:"Columns to return besides the key"`
	Highlight   bool     `json:"highlight,omitempty" doc:"Return passages as HTML with the words of the text marked"`
}

// Request returns the request for the database.
func (w *Wish) Request(text string, rows int) search.Request {
	return search.Request{
		Text: text, Rows: rows, Offset: w.Offset, Hybrid: w.Hybrid, Filter: w.Filter.Filters, Columns: w.Columns,
		MaxDistance: w.MaxDistance, FreshOnly: w.FreshOnly, Rerank: w.Rerank, Highlight: w.Highlight,
	}
}

type filters struct{ search.Filters }

func (filters) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "Columns with what " +
		`they must be: a value, a list of values, or operators ({"$gte": 3, "$ne": 5}): $eq, $ne, $in, $nin, $gt, $gte, ` +
		"$lt, $lte"}
}
