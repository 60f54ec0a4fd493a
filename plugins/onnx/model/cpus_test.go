package model

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupCPUs(t *testing.T) {
	for _, test := range []struct {
		name, self string
		limits     map[string]string
		want       int
	}{
		{"own limit", "0::/a/b\n", map[string]string{"a/b": "150000 100000", "a": "max 100000"}, 2},
		{"limit of a group around it", "0::/a/b\n", map[string]string{"a/b": "400000 100000", "a": "100000 100000"}, 1},
		{"limit of the root, as in a container", "0::/\n", map[string]string{"": "50000 100000"}, 1},
		{"after lines of version 1", "4:cpu:/x\n0::/a\n", map[string]string{"a": "300000 100000"}, 3},
		{"none", "0::/a\n", map[string]string{"a": "max 100000"}, math.MaxInt},
		{"version 1 only", "4:cpu:/x\n", nil, math.MaxInt},
		{"nonsense", "0::/a\n", map[string]string{"a": "x y", "": "-1 0"}, math.MaxInt},
		{"outside", "0::/../../etc\n", nil, math.MaxInt},
	} {
		t.Run(test.name, func(t *testing.T) {
			mount := t.TempDir()
			self := filepath.Join(mount, "self")
			err := os.WriteFile(self, []byte(test.self), 0o600)
			for folder, limit := range test.limits {
				folder = filepath.Join(mount, folder)
				err = errors.Join(err, os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "cpu.max"), []byte(limit),
					0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := cgroupCPUs(self, mount); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if got := cgroupCPUs(filepath.Join(t.TempDir(), "missing"), "/"); got != math.MaxInt {
		t.Errorf("without a file: got %d", got)
	}
	if got := usableCPUs(); got < 1 {
		t.Errorf("usableCPUs() = %d", got)
	}
}
