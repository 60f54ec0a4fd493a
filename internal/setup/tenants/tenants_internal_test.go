package tenants

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// TestTrust_ANameMeansOneDatabase: two servers have a database of this name, and the first does not answer now.
func TestTrust_ANameMeansOneDatabase(t *testing.T) {
	t.Parallel()
	f := Found{List: []Tenant{{Name: "named"}}, unknown: []unknown{{"postgres://first", "tenant_*"}}}
	for _, c := range []struct {
		name, server string
		want         bool
	}{
		{"named", "postgres://second", true},
		{"tenant_a", "postgres://second", true},
		{"tenant_a", "postgres://first", false},
		{"shop", "postgres://second", false},
	} {
		if got := f.takes(c.name, c.server); got != c.want {
			t.Errorf("%s of %s: taken %t, want %t", c.name, c.server, got, c.want)
		}
	}
}

// A new database replaces none in use, whatever its name. Databases configured by name come first.
func TestP5_BeyondTheLimitTheOldestAreKept(t *testing.T) {
	t.Parallel()
	f := Found{List: []Tenant{{Name: "named"}, {Name: "a", OID: 30}, {Name: "b", OID: 10}, {Name: "c", OID: 20}}}
	for _, want := range []struct {
		limit int
		names []string
	}{{4, []string{"named", "a", "b", "c"}}, {3, []string{"named", "b", "c"}}, {1, []string{"named"}}} {
		f := Found{List: slices.Clone(f.List)}
		f.keep(want.limit)
		names := lists.Map(f.List, func(t Tenant) string { return t.Name })
		if !slices.Equal(names, want.names) || f.Beyond != 4-want.limit {
			t.Errorf("with a limit of %d: %v and %d more, want %v", want.limit, names, f.Beyond, want.names)
		}
	}
}
