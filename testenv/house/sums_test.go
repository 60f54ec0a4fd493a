package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackages_AreListedAndSigned: the check detects a changed package and a changed list.
func TestPackages_AreListedAndSigned(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../tools/sums.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	do := func(environ, stdin, name string, args ...string) error {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env, c.Stdin = dir, append(os.Environ(), "SIGN_KEY="+environ), strings.NewReader(stdin)
		said, err := c.CombinedOutput()
		t.Logf("%s %s: %v %s", name, strings.Join(args, " "), err, said)
		return err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if do("", "", script, dir) == nil {
		t.Error("a folder without packages has a list")
	}
	write("embedsidecar_1_amd64.deb", "deb")
	write("embedsidecar-1.x86_64.rpm", "rpm")
	if err := do("", "", script, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file("SHA256SUMS.sig")); err == nil {
		t.Error("there is a signature without a key")
	}
	list, err := os.ReadFile(file("SHA256SUMS"))
	if err != nil || strings.Count(string(list), "\n") != 2 {
		t.Fatalf("%s, %v", list, err)
	}
	if _, err := exec.LookPath("ssh-keygen"); err == nil { // a machine may have none
		if err := do("", "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file("key")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also over one that is there
			if err := do(file("key"), "", script, dir); err != nil {
				t.Fatal(err)
			}
		}
		public, err := os.ReadFile(file("key.pub"))
		if err != nil {
			t.Fatal(err)
		}
		write("allowed_signers", "release "+string(public))
		verify := func(list string) error {
			return do("", list, "ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", "release", "-n", "release",
				"-s", "SHA256SUMS.sig")
		}
		if err := verify(string(list)); err != nil {
			t.Error("the signature is refused")
		}
		if verify(strings.ToUpper(string(list))) == nil {
			t.Error("another list passes for the signed one")
		}
	}
	if err := do("", "", "sha256sum", "--check", "--strict", "SHA256SUMS"); err != nil {
		t.Error("the packages are refused")
	}
	write("embedsidecar-1.x86_64.rpm", "changed")
	if do("", "", "sha256sum", "--check", "--strict", "SHA256SUMS") == nil {
		t.Error("another package passes for the listed one")
	}
	if makefile := read(t, "tools/package.sh"); !strings.Contains(makefile, "\ntools/sums.sh dist\n") {
		t.Error("make packages writes no list")
	}
}
