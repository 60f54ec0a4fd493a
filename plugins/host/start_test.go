package host_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

func sumOf(t *testing.T, path string) string {
	t.Helper()
	s, err := host.Sum(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copyFake copies the plugin to where a test may change it.
func copyFake(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // the path as in /proc
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "embedsidecar-fake")
	install(t, path, "")
	return path
}

// refusedStart is a plugin that cannot start until a user fixes something.
type refusedStart struct {
	path, faults, model string
	env                 map[string]string
	code                string
	says                []string
}

func refusedStarts(t *testing.T) map[string]refusedStart {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(program.Write(path, []byte(content)), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert := strings.Repeat("A", 200)
	return map[string]refusedStart{
		"missing": {path: filepath.Join(dir, "nowhere"), code: "missing", says: []string{"nowhere"}},
		"folder":  {path: dir, code: "not_executable"},
		"mode":    {path: write("mode", "#!/bin/sh\n", 0o644), code: "not_executable", says: []string{"chmod +x"}},
		"not a program": {
			path: write("text", "hello", 0o755), code: "not_executable",
			says: []string{"first line", "#!"},
		},
		"no interpreter": {
			path: write("interpreter", "#!/no/such/interpreter\n", 0o755), code: "not_executable",
			says: []string{"interpreter"},
		},
		"exits": {faults: "exit-at-start", code: "start", says: []string{"exit status 3", "line 30", "line 11\n"}},
		"bad faults": {
			faults: "no-such-fault", code: "start",
			says: []string{"exit status 2", `item "no-such-fault": unknown`},
		},
		"describe fails": {faults: "describe-fails", code: "describe", says: []string{"told to find no model"}},
		"describe exits": {faults: "describe-exits", code: "start", says: []string{"exit status 4", "told to exit"}},
		"no handshake": {
			faults: "garbage-at-start", code: "handshake",
			says: []string{"Segmentation fault (not really)"},
		},
		"empty line":   {path: script(t, "echo; exec /bin/sleep 1000\n"), code: "handshake"},
		"endless line": {path: script(t, "exec /bin/cat /dev/zero\n"), code: "handshake"},
		"protocol version": {
			path: script(t, `echo "1|2|unix|/tmp/x|grpc|`+cert+`"; exec /bin/sleep 1000`),
			code: "protocol_version", says: []string{"version 2", "version 1"},
		},
		"old go-plugin": {path: script(t, `echo "1|1|unix|/tmp/x"; exec /bin/sleep 1000`), code: "handshake"},
		"core version": {path: script(t, `echo "9|1|unix|$PLUGIN_UNIX_SOCKET_DIR/x|grpc|`+cert+
			`"; exec /bin/sleep 1000`), code: "handshake"},
		"net/rpc": {
			path: script(t, `echo "1|1|unix|/tmp/x|netrpc|`+cert+`"; exec /bin/sleep 1000`),
			code: "handshake", says: []string{"gRPC"},
		},
		"no certificate": {
			path: script(t, `echo "1|1|unix|$PLUGIN_UNIX_SOCKET_DIR/x|grpc|"; exec /bin/sleep 1000`),
			code: "handshake", says: []string{"certificate"},
		},
		"tcp": {
			path: script(t, `echo "1|1|tcp|127.0.0.1:1|grpc|`+cert+`"; exec /bin/sleep 1000`),
			code: "handshake", says: []string{"Unix socket"},
		},
		"socket elsewhere": {
			path: script(t, `echo "1|1|unix|/tmp/x|grpc|`+cert+`"; exec /bin/sleep 1000`),
			code: "handshake", says: []string{"PLUGIN_UNIX_SOCKET_DIR"},
		},
		"unknown model": {model: "other", code: "unknown_model", says: []string{`"other"`, `["fake"]`}},
		"wide": {
			env: map[string]string{"EMBEDSIDECAR_PLUGIN_DIMS": "16001"}, code: "start",
			says: []string{"16000"},
		},
		"no temporary room": {env: map[string]string{"temp": "/proc/none"}, code: "sockets"},
	}
}

func TestStart_RefusesWhatAPersonMustMend(t *testing.T) {
	t.Parallel()
	for name, tt := range refusedStarts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": tt.faults})
			maps.Copy(o.Env, tt.env)
			o.TempDir, o.Model = tt.env["temp"], tt.model
			if tt.path != "" {
				o.Path = tt.path
			}
			h := open(t, o)
			_, err := h.Embed(t.Context(), embed.Document, []string{"a"})
			wantError(t, err, embed.Configuration, tt.code)
			var start *host.StartError
			if !errors.As(err, &start) || start.Path != o.Path {
				t.Errorf("the error is no StartError of %s: %v", o.Path, err)
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			if n := len(start.Stderr); n > 20 || strings.Contains(err.Error(), "line 10\n") {
				t.Errorf("%d lines of output, want at most the last 20", n)
			}
			// Until the pause is over, calls return the same error immediately.
			_, err = h.Describe(t.Context())
			wantError(t, err, embed.Configuration, tt.code)
			if h.Pid() != 0 {
				t.Error("the plugin was left running")
			}
		})
	}
}

// The error of a start has the plugin's last output, and becomes the message of every task that waits for it.
// PostgreSQL stores no NUL: the tasks would be failed for it, row by row.
func TestP5_OutputWithoutWordsHarmsNoTask(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"zeros": `printf 'T\000h\000e\000 \000e\000n\000d\000\n' >&2; exit 3`,
		"JSON":  `printf '{"level":"ERROR","msg":"The\\u0000 end\\u001b[31m"}\n' >&2; exit 3`,
	} {
		o := options(nil)
		o.Path = script(t, body)
		_, err := open(t, o).Embed(t.Context(), embed.Document, []string{"a"})
		wantError(t, err, embed.Configuration, "start")
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) ||
			!strings.Contains(err.Error(), "end") && !strings.Contains(err.Error(), "e n d") {
			t.Errorf("%s: %q", name, err)
		}
	}
}

func TestStart_FailuresThatPass(t *testing.T) {
	t.Parallel()
	for faults, says := range map[string]string{
		"crash-at-start": "killed", "hang-at-start": "more than 300ms", "describe-hangs": "more than 300ms",
	} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			o := options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": faults})
			if strings.Contains(faults, "hang") {
				o.StartTimeout = 300 * time.Millisecond
			}
			_, err := open(t, o).Embed(t.Context(), embed.Document, []string{"a"})
			wantError(t, err, embed.Transient, "unavailable")
			if !strings.Contains(err.Error(), says) {
				t.Errorf("the error does not say %q: %v", says, err)
			}
		})
	}
}

func TestStart_ChecksSums(t *testing.T) {
	t.Parallel()
	path := copyFake(t)
	other := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(other, []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := sumOf(t, path)
	bad := strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		own, other, otherPath, code string
	}{
		"own file":     {own: bad, code: "checksum"},
		"other file":   {own: good, other: bad, otherPath: other, code: "checksum"},
		"missing file": {own: good, other: bad, otherPath: other + "x", code: "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(nil)
			o.Path, o.SHA256 = path, tt.own
			if tt.otherPath != "" {
				o.Files = map[string]string{tt.otherPath: tt.other}
			}
			_, err := open(t, o).Describe(t.Context())
			wantError(t, err, embed.Configuration, tt.code)
			if tt.code == "checksum" && (!strings.Contains(err.Error(), "expected "+bad) || strings.Count(err.Error(),
				bad) != 1) {
				t.Errorf("the error does not say got and expected: %v", err)
			}
		})
	}
	o := options(nil)
	o.Path, o.SHA256, o.Files = path, strings.ToUpper(good), map[string]string{other: sumOf(t, other)}
	h := open(t, o)
	mustEmbed(t, h, "a")

	// The running file is the checked one, under its own name.
	pid := h.Pid()
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe != path {
		t.Errorf("the process runs %s, want %s (%v)", exe, path, err)
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(comm) != "embedsidecar-fa\n" {
		t.Errorf("the process is called %q, want embedsidecar-fa (%v)", comm, err)
	}
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || string(cmdline) != path+"\x00" {
		t.Errorf("the command line is %q, want %s (%v)", cmdline, path, err)
	}

	// A file replaced while the plugin runs is refused at the next start, and accepted once it is restored.
	original, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(content []byte) {
		if err := program.Write(path, content); err != nil {
			t.Fatal(err)
		}
	}
	replace(append(slices.Clone(original), 0))
	mustEmbed(t, h, "a")
	kill(t, pid, syscall.SIGKILL)
	eventuallyFails(t, h, "the wrong file is refused", []string{"a"}, embed.Configuration, "checksum")
	replace(original)
	mustEmbed(t, h, "a")
}

// TestStart_WhatIsPinnedIsRunThoughOthersWrite: a pinned file is open for writing and may change after its check, so a
// copy is run.
func TestStart_WhatIsPinnedIsRunThoughOthersWrite(t *testing.T) {
	t.Parallel()
	o := options(nil)
	o.Path = copyFake(t)
	o.SHA256 = sumOf(t, o.Path)
	if err := os.Chmod(o.Path, 0o775); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	h := open(t, o)
	mustEmbed(t, h, "a")
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.Pid()))
	if name, _, _ := strings.Cut(string(cmdline), "\x00"); err != nil || name != o.Path {
		t.Errorf("the program finds its own place by %q, want %s (%v)", name, o.Path, err)
	}
	if _, err := writer.WriteAt(make([]byte, 1<<20), 1<<20); err != nil {
		t.Fatal(err)
	}
	mustEmbed(t, h, "b")
	kill(t, h.Pid(), syscall.SIGKILL)
	eventuallyFails(t, h, "the changed file is refused", []string{"a"}, embed.Configuration, "checksum")
}

func TestStart_LeaksNoEnvironment(t *testing.T) {
	t.Parallel()
	h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_DIMS": "8", "EMBEDSIDECAR_PLUGIN_THREADS": "2"}))
	mustEmbed(t, h, "a")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", h.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(environ), "\x00"), "\x00") {
		key, _, _ := strings.Cut(entry, "=")
		keys = append(keys, key)
	}
	slices.Sort(keys)
	want := []string{
		"EMBEDSIDECAR_PLUGIN_COOKIE", "EMBEDSIDECAR_PLUGIN_DIMS", "EMBEDSIDECAR_PLUGIN_LIFELINE",
		"EMBEDSIDECAR_PLUGIN_THREADS",
		"PLUGIN_CLIENT_CERT", "PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if strings.Contains(string(environ), "canary") {
		t.Error("a canary of the host's environment is in the plugin's")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.Pid()))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("the plugin may gain privileges: %v", err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", h.Pid()))
	if core := regexp.MustCompile(`Max core file size +0 +0 `); err != nil || !core.Match(limits) {
		t.Errorf("the plugin may dump its memory: %v\n%s", err, limits)
	}
	if now := privileges(); now != hostPrivileges {
		t.Errorf("what the host may gain was %q and is %q", hostPrivileges, now)
	}
}

// hostPrivileges is this process's NoNewPrivs state before any plugin was started.
var hostPrivileges = privileges()

func privileges() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(status), "NoNewPrivs:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func TestNew_RefusesMistakesInOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]host.Options{
		"no path":     {},
		"sum":         {Path: fake, SHA256: "abc"},
		"file's sum":  {Path: fake, Files: map[string]string{"x": "zz"}},
		"env key":     {Path: fake, Env: map[string]string{"A=B": ""}},
		"env value":   {Path: fake, Env: map[string]string{"A": "\x00"}},
		"empty key":   {Path: fake, Env: map[string]string{"": "x"}},
		"sum's digit": {Path: fake, SHA256: strings.Repeat("g", 64)},
	} {
		if _, err := host.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
