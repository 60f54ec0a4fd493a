package sdk_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

// fake is the path of the fake plugin, which uses this package.
var fake string

func TestMain(m *testing.M) {
	os.Exit(program.Build("../fake", "embedsidecar-fake", func(path string) int { fake = path; return m.Run() }))
}

var cookie = pluginpb.MagicCookieKey + "=" + pluginpb.MagicCookieValue

func TestServe_RefusesToBeStartedByHand(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(fake)
	cmd.Env = []string{"EMBEDSIDECAR_PLUGIN_DIMS=8"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "plugin") {
		t.Errorf("%v: %s, want status 1 and a word about plugins", err, out)
	}
}

// A host of a later version may still support this one; if not, the plugin prints an error and exits.
func TestServe_AgreesOnAVersion(t *testing.T) {
	t.Parallel()
	for offered, agrees := range map[string]bool{
		"1": true, "2,1": true, "3, 1 ,2": true, "": true, "2": false,
		"2,3": false, "11": false, "x": false,
	} {
		cmd := exec.Command(fake)
		cmd.Env = []string{cookie, "PLUGIN_PROTOCOL_VERSIONS=" + offered, "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n') // EOF if the plugin refuses
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := strings.HasPrefix(line, "1|1|unix|"); got != agrees {
			t.Errorf("offered %q: handshake %q, %s", offered, line, &stderr)
		}
		if refusal := fmt.Sprintf("speaks version 1 of the plugin protocol, the program that started it only %q",
			offered); !agrees && !strings.Contains(stderr.String(), refusal) {
			t.Errorf("offered %q: %q", offered, &stderr)
		}
	}
}

func TestServe_EndsWithItsLifeline(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(fake)
	cmd.Env = []string{cookie, pluginpb.LifelineKey + "=" + pluginpb.LifelineStdin, "PLUGIN_UNIX_SOCKET_DIR=" +
		t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "1|1|unix|") {
		t.Fatalf("handshake %q, %v", line, err)
	}
	if err := lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it kills itself
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		_ = cmd.Process.Kill()
		t.Error("the plugin outlived its lifeline")
	}
}

// Without a lifeline, under another kind of host, the plugin watches its parent.
func TestServe_EndsWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command("/bin/sh", "-c", fake+" & echo $!; read line")
	parent.Env = []string{cookie, "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()}
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	second, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(first, "1|") {
		first = second
	}
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The plugin keeps the pipe open until it ends.
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("the plugin outlived its parent")
	}
	_ = parent.Wait()
}
