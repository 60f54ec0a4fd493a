package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The kinds of indexes that can be built.
const (
	IndexHNSW     = "hnsw"
	IndexIVFFlat  = "ivfflat"
	IndexDiskANN  = "diskann"
	IndexVChordRQ = "vchordrq"
)

// IndexBuild has the parameters of an index; 0: pgvector's default.
type IndexBuild struct {
	M, EfConstruction int    // of hnsw: connections per vector, and candidates to find them
	Lists             int    // of ivfflat; 0: by the number of rows
	Options           string // for kinds of other extensions: name = value, ...
}

// OtherIndex is a kind of index of another extension than pgvector.
type OtherIndex struct {
	Extension string            // name for CREATE EXTENSION
	Project   string            // name for messages
	options   map[string]string // the allowed values of each: a type, or words
	within    map[string]bool   // options that belong to a section
}

var otherIndexes = map[string]OtherIndex{
	IndexDiskANN: {Extension: "vectorscale", Project: "pgvectorscale", options: map[string]string{
		"storage_layout": "memory_optimized plain", "num_neighbors": "number", "search_list_size": "number",
		"max_alpha": "fraction", "num_dimensions": "number", "num_bits_per_dimension": "number",
	}},
	IndexVChordRQ: {Extension: "vchord", Project: "VectorChord", options: map[string]string{
		"residual_quantization": "false true", "lists": "number", "spherical_centroids": "false true",
		"sampling_factor": "number", "build_threads": "number", "kmeans_iterations": "number",
	}, within: map[string]bool{
		"lists": true, "spherical_centroids": true, "sampling_factor": true, "build_threads": true, "kmeans_iterations": true,
	}},
}

// OtherIndexOf returns a kind of index of another extension than pgvector, or nil.
func OtherIndexOf(kind string) *OtherIndex {
	if o, ok := otherIndexes[kind]; ok {
		return &o
	}
	return nil
}

// read parses the options; mistake says what is wrong with them.
func (o *OtherIndex) read(text string) (list [][2]string, mistake string) {
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(text) == "" {
			return nil, ""
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		form, known := o.options[name]
		_, notWhole := strconv.ParseUint(value, 10, 31)
		fraction, notFraction := strconv.ParseFloat(value, 64)
		switch {
		case !known:
			return nil, fmt.Sprintf("options: %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(o.options)), ", "))
		case slices.ContainsFunc(list, func(said [2]string) bool { return said[0] == name }):
			return nil, fmt.Sprintf("options: %s is said twice", name)
		case form == "number" && notWhole != nil:
			return nil, fmt.Sprintf("options: %s = %q: expected a whole number", name, value)
		case form == "fraction" && (notFraction != nil || !(fraction > 0 && fraction < 1e6)):
			return nil, fmt.Sprintf("options: %s = %q: expected a number above 0", name, value)
		case form != "number" && form != "fraction" && !slices.Contains(strings.Fields(form), value):
			return nil, fmt.Sprintf("options: %s = %q: expected one of %s", name, value,
				strings.Join(strings.Fields(form), ", "))
		}
		list = append(list, [2]string{name, value})
	}
	return list, ""
}

// With returns validated options for CREATE INDEX, or "".
func (o *OtherIndex) With(text string) string {
	list, _ := o.read(text)
	if list == nil {
		return ""
	}
	var flat, top, within []string
	for _, said := range list {
		flat = append(flat, said[0]+" = "+said[1])
		line := said[0] + " = " + said[1]
		if said[0] == "lists" {
			line = said[0] + " = [" + said[1] + "]"
		}
		if o.within[said[0]] {
			within = append(within, line)
		} else {
			top = append(top, line)
		}
	}
	if o.within == nil {
		return " WITH (" + strings.Join(flat, ", ") + ")"
	}
	if within != nil { // TOML: a section ends where the next one begins, so it comes last
		top = append(append(top, "[build.internal]"), within...)
	}
	return " WITH (options = $$\n" + strings.Join(top, "\n") + "\n$$)"
}

// mistake returns what is wrong with the requested index, or "".
func (b IndexBuild) mistake(kind string, sparse bool) string {
	const usualM, usualEf = 16, 64
	other := OtherIndexOf(kind)
	m, ef := cmp.Or(b.M, usualM), cmp.Or(b.EfConstruction, usualEf)
	switch {
	case kind != IndexHNSW && (b.M != 0 || b.EfConstruction != 0):
		return "index: m and ef_construction are of hnsw: kind: hnsw"
	case kind != IndexIVFFlat && b.Lists != 0:
		return "index: lists is of ivfflat: kind: ivfflat"
	case other == nil && b.Options != "":
		return "index: options are of diskann and vchordrq: kind: diskann"
	case kind == IndexHNSW && ef < 2*m:
		return fmt.Sprintf("index: ef_construction is %d and must be at least twice m, which is %d", ef, m)
	case kind == IndexIVFFlat && sparse:
		return "index: ivfflat takes no sparse vectors; hnsw does"
	case other != nil:
		if _, mistake := other.read(b.Options); mistake != "" {
			return "index: " + mistake
		}
	}
	return ""
}
