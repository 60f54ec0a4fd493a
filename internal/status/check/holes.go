package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// holes are versions of pgvector that should not be used: those from one on that came before the one that mends them.
var holes = []struct{ since, mended, name, what string }{
	{
		"0.6.0", "0.8.2", "CVE-2026-3172",
		"whoever may build an HNSW index with parallel workers can read other tables or crash the server",
	},
}

// checkVector tells of an installed pgvector.
func (c *checker) checkVector(version string) {
	const name = "extension vector"
	for _, h := range holes {
		if older(version, h.mended) && !older(version, h.since) {
			c.add(name, Warn, fmt.Sprintf("%s has the vulnerability %s: %s; %s mends it", version, h.name, h.what, h.mended),
				"install the newest package of pgvector on the server, then ALTER EXTENSION vector UPDATE; in each database",
				"until then: SET max_parallel_maintenance_workers = 0 for whoever builds indexes")
			return
		}
	}
	c.add(name, OK, version)
}

// older compares two versions, such as 0.8.1 and 0.10; what is no number counts as 0.
func older(a, b string) bool {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		n, _ := strconv.Atoi(x)
		m, _ := strconv.Atoi(y)
		return cmp.Compare(n, m)
	}) < 0
}
