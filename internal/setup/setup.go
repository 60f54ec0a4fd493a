// Package setup asks a database whether a pipeline can work, makes what it needs, checks it, and takes it away again.
//
// It believes only the catalogue: what a text expression reads, which columns are the key and how they compare,
// whether a role may do what running asks for. It never changes a table of the user without saying so, and every
// change it makes has its undo in the report. All its connections come from package database, so search_path is
// pg_catalog.
package setup
