package host

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// Options say which plugin to run, and its limits.
type Options struct {
	// Name is the plugin's name in logs and errors. Default: the file's name without "embedsidecar-".
	Name string
	// Path is the plugin's executable file.
	Path string
	// Args are the arguments of the program. They must not contain secrets.
	Args []string
	// SHA256 is the required SHA-256 of the file at Path in hexadecimal, checked before each start. Empty: not checked.
	// The hashed file is the one that runs, even if Path is replaced in between. This does not hold for scripts, whose
	// interpreter opens the path again, nor outside Linux.
	SHA256 string
	// Files are further files to check, as a map from path to SHA-256. Use it to pin a plugin of several files, such as
	// a script.
	Files map[string]string
	// Env is the plugin's environment, without the variables of the handshake. Nothing is inherited.
	Env map[string]string
	// Model is the model to use. Empty: the plugin's only one.
	Model string
	// TempDir is the parent of the folder for the plugin's sockets. Its path may have about 25 bytes, because paths of
	// Unix sockets are short. Empty: the system's.
	TempDir string
	// Processes is the maximum number of processes; another one starts when all are busy. Default 1.
	Processes int
	// MemoryLimit is the limit of the resident memory of a process and its children, in bytes (Linux only). A process
	// above it is replaced. One that exceeds it by a quarter is killed. 0: no limit.
	MemoryLimit uint64
	// Canary is the interval at which a process in use is sent texts whose vectors are known (CanaryTexts). The check
	// also runs at each start. It finds a process that returns vectors in the wrong order. 0: never.
	Canary time.Duration
	// StartTimeout limits the time from the start of the program to its description. Default 60 s, or the time of a call
	// without texts if that is more: a plugin that is slow in calls loads a large model, too.
	StartTimeout time.Duration
	// CallTimeout is how long a call may take before the plugin counts as hanging and is killed, given the texts and
	// bytes of all calls under way. Default: DefaultCallTimeout.
	CallTimeout func(texts, bytes int) time.Duration
	// RestartDelay is the delay before a plugin that ended is restarted. It doubles with each consecutive failure, up
	// to RestartDelayMax, with a jitter of 20 %. Defaults: 100 ms and 30 s.
	RestartDelay, RestartDelayMax time.Duration
	// MaxBadAnswers is how many invalid answers in a row (wrong count, wrong width and so on) make the host restart the
	// plugin. Answers to batches that the caller halves do not count. Default 20.
	MaxBadAnswers int
	// Redact removes secrets from all output and messages of the plugin. Values of Env variables that are named like
	// keys, tokens or passwords are always removed, also if Redact is nil.
	Redact func(string) string
	// Log receives the plugin's output and lifecycle events. Default: nothing is logged.
	Log *slog.Logger
}

// DefaultCallTimeout allows 30 s, a quarter of a second for each text and a second for each 16 KiB of text: a hundred
// times what a small model needs.
func DefaultCallTimeout(texts, bytes int) time.Duration {
	return CallTimeout(30*time.Second)(texts, bytes)
}

// CallTimeout is DefaultCallTimeout with another base than 30 s.
func CallTimeout(least time.Duration) func(texts, bytes int) time.Duration {
	return func(texts, bytes int) time.Duration {
		return least + time.Duration(texts)*250*time.Millisecond + time.Duration(bytes/(16<<10))*time.Second
	}
}

// withDefaults returns the options with defaults filled in, or all errors in them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Path == "" {
		errs = append(errs, errors.New("the path is empty"))
	}
	o.Name = cmp.Or(o.Name, strings.TrimPrefix(filepath.Base(o.Path), "embedsidecar-"))
	if abs, err := filepath.Abs(o.Path); err == nil {
		o.Path = abs
	}
	for _, sum := range append([]string{o.SHA256}, slices.Collect(maps.Values(o.Files))...) {
		if sum != "" && !folder.IsSum(sum) {
			errs = append(errs, fmt.Errorf("%q is not a SHA-256: want 64 hexadecimal digits", sum))
		}
	}
	for key, value := range o.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			errs = append(errs, fmt.Errorf("environment variable %q cannot be set", key))
		}
	}
	if o.Processes < 0 || o.Processes > embed.MaxProcesses {
		errs = append(errs, fmt.Errorf("%d processes: want 1 to %d", o.Processes, embed.MaxProcesses))
	}
	o.Processes = min(max(o.Processes, 1), embed.MaxProcesses)
	if o.CallTimeout == nil {
		o.CallTimeout = DefaultCallTimeout
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = max(time.Minute, o.CallTimeout(0, 0))
	}
	if o.RestartDelay <= 0 {
		o.RestartDelay = 100 * time.Millisecond
	}
	if o.RestartDelayMax < o.RestartDelay {
		o.RestartDelayMax = max(30*time.Second, o.RestartDelay)
	}
	if o.MaxBadAnswers <= 0 {
		o.MaxBadAnswers = 20
	}
	o.Redact = redactor(o.Env, o.Redact)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Log = o.Log.With("plugin", o.Name)
	return o, errors.Join(errs...)
}

// openVerified opens the plugin's file and verifies it and the further files. The returned file holds the bytes that
// were hashed, and nobody can change them before they run: if others than root can write the file, it is a copy.
func openVerified(o Options) (*os.File, error) {
	f, err := os.Open(o.Path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, configuration("missing", fmt.Errorf("there is no file %s: install the plugin there, or name its folder",
				o.Path))
		}
		return nil, fileError(err)
	}
	err = func() error {
		info, err := f.Stat()
		if err != nil {
			return fileError(err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return configuration("not_executable",
				fmt.Errorf("%s is not an executable file (mode %s): make it one with chmod +x, or name the right file", o.Path,
					info.Mode()))
		}
		if o.SHA256 != "" {
			script := isScript(f)
			if !script {
				if f, err = sealed(f, info); err != nil {
					return fileError(err)
				}
			}
			hashed, err := checkSum(f, o.Path, o.SHA256)
			if err == nil && script && !hashed { // others write it: it may have become one only for this question
				err = unavailable(0, fmt.Errorf("%s was changed while it was checked", o.Path))
			}
			if err != nil {
				return err
			}
		}
		for path, want := range o.Files {
			if err := checkFile(path, want); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(path, want string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return configuration("missing", fmt.Errorf("there is no file %s, which the plugin needs", path))
	}
	if err != nil {
		return fileError(err)
	}
	defer func() { _ = f.Close() }()
	_, err = checkSum(f, path, want)
	return err
}

// Sum returns the SHA-256 of a file, for Options.SHA256.
func Sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return sumOf(f)
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// checkSum verifies a file's SHA-256 and rewinds it. It reports whether what it read is a script.
func checkSum(f *os.File, path, want string) (script bool, err error) {
	in := bufio.NewReader(f)
	head, _ := in.Peek(len(shebang)) // a file may be shorter; other errors follow
	script = string(head) == shebang
	got, err := sumOf(in)
	if err != nil {
		return false, fileError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, fileError(err)
	}
	if got != strings.ToLower(want) {
		return false, configuration("checksum",
			fmt.Errorf("sha256 of %s is %s, expected %s: put the expected file back, or, if this one is meant, "+
				"pin it (embedsidecar plugins register, or its sha256 in the configuration)", path, got, strings.ToLower(want)))
	}
	return script, nil
}

// fileError classifies a failure to read a file. Exhausted resources are temporary; anything else is a configuration
// error.
func fileError(err error) error {
	if isResource(err) {
		return &embed.Error{Class: embed.Resource, Code: "resource", Err: err}
	}
	return configuration("unreadable", err)
}

// shebang begins a script.
const shebang = "#!"

// isScript reports whether the file is a script. It does not move the file's offset.
func isScript(f *os.File) bool {
	var head [len(shebang)]byte
	n, _ := f.ReadAt(head[:], 0)
	return string(head[:n]) == shebang
}
