package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProcesses_LeaveNoZombies: processes that a plugin started become children of a host that is the init process of a
// container, and the host reaps them. Zombies use up a container's pids.
func TestProcesses_LeaveNoZombies(t *testing.T) {
	t.Parallel()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as an init process does
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "forks")
	h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "fork", "EMBEDSIDECAR_PLUGIN_FORKS": list}))
	mustEmbed(t, h, "a")
	content, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, h.Pid(), syscall.SIGKILL)
	for pid := range strings.FieldsSeq(string(content)) {
		eventually(t, fmt.Sprintf("process %s is reaped", pid), func() error {
			if _, err := os.Stat(filepath.Join("/proc", pid)); !errors.Is(err, os.ErrNotExist) {
				return errors.New("it is there")
			}
			return nil
		})
	}
}
