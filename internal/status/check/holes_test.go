package check

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// TestTrust_VersionsOfPgvectorWithHolesAreTold: vulnerable versions are reported, and no others.
func TestTrust_VersionsOfPgvectorWithHolesAreTold(t *testing.T) {
	t.Parallel()
	for version, affected := range map[string]bool{
		"0.5.1": false, "0.6.0": true, "0.7.4": true, "0.8.0": true, "0.8.1": true, "0.8.2": false, "0.8.10": false,
		"0.10.0": false, "1.0": false,
	} {
		var c checker
		c.checkVector(version)
		f := c.findings[len(c.findings)-1]
		if told := f.Status == Warn && strings.Contains(f.Detail, "CVE-2026-3172") && len(f.Hint) > 0; told != affected {
			t.Errorf("%s: %+v", version, f)
		}
	}
}

// TestTrust_ServersThatCannotRefuseViewsAreTold: the last minor releases can refuse them.
func TestTrust_ServersThatCannotRefuseViewsAreTold(t *testing.T) {
	t.Parallel()
	for _, can := range []bool{true, false} {
		var c checker
		c.checkViews(&catalog.Server{TablesOnly: can})
		if told := len(c.findings) == 1 && c.findings[0].Status == Warn && len(c.findings[0].Hint) > 0; told == can {
			t.Errorf("a server that can, %t: %+v", can, c.findings)
		}
	}
}

// TestCheckExtension_AllThatAMissingPackageTakes: once its package is installed, the extension blocks nothing.
func TestCheckExtension_AllThatAMissingPackageTakes(t *testing.T) {
	t.Parallel()
	for _, available := range []string{"", "0.8.2"} {
		var c checker
		c.checkExtension(&catalog.Server{Version: 180000, HasPublic: true, VectorAvailable: available})
		if f := c.findings[0]; f.Status != Wrong || !strings.Contains(strings.Join(f.Hint, " "), "CREATE EXTENSION vector") {
			t.Errorf("the server has %q: %+v", available, f)
		}
	}
}
