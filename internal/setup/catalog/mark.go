package catalog

import "strings"

// OurMark begins the comment on a destination that init made, so that it can be told from what was there before. The
// comment says whose vectors these are and what made them. It outlives the schema embedsidecar: by it an embedding
// table that uninstall has left is taken up again, and uninstall finds what an earlier one left.
const (
	OurMark   = "embedsidecar:"
	VectorsOf = OurMark + " vectors of "
	// a view that somebody has made by embedsidecar.view_sql
	ViewOf = OurMark + " rows with their vectors"
)

// MarkOf is the comment on a destination for a source table and an embedder.
func MarkOf(source *Table, fingerprint string) string {
	return VectorsOf + source.Quoted() + " by " + fingerprint
}

// markIn returns a comment if init made it, or "".
func markIn(comment string) string {
	if strings.HasPrefix(comment, OurMark) {
		return comment
	}
	return ""
}
