package host

import (
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
)

// Options say which plugin to run and how far to trust it.
type Options struct {
	// Name is what logs and errors call the plugin. Default: the file's name without "embedsidecar-".
	Name string
	// Path is the plugin's executable file.
	Path string
	// Args follow the file's name on its command line. Never put a secret there.
	Args []string
	// SHA256 is what the file at Path must have as its SHA-256 before each start, in hexadecimal. Empty: not checked.
	// The file that was hashed is the file that is run, even when Path is replaced in between (not so for scripts, whose
	// interpreter opens the path again, and outside Linux).
	SHA256 string
	// Files are further files that are checked in the same way: path to SHA-256. A script's interpreter runs what it
	// likes, so a plugin of several files is pinned file by file.
	Files map[string]string
	// Env is the plugin's whole environment but for the variables of the handshake. Nothing is inherited.
	Env map[string]string
	// Model is the model to use. Empty: the plugin's only one.
	Model string
	// TempDir is where the folder of the plugin's socket is made: at most about 50 bytes long, as the names of Unix
	// sockets are short. Empty: the system's.
	TempDir string
	// Processes is how many processes may run at a time; another one starts when all that run are busy. Default 1.
	Processes int
	// MemoryLimit is the most resident memory a process may have, in bytes, with what it has started (Linux only). One
	// above it is replaced by a new one; one that grows by another quarter is killed. 0: no limit.
	MemoryLimit uint64
	// Canary is how often, while it is in use, and at each start, a process is asked texts of which the vectors are known
	// (CanaryTexts), so that one which answers in another order than it is asked gets no work. 0: never.
	Canary time.Duration
	// StartTimeout is the time from starting the program to its description. Default 60 s.
	StartTimeout time.Duration
	// CallTimeout is how long a call may take before the plugin is taken to hang and killed, given the texts and bytes
	// of all calls under way. Default: DefaultCallTimeout.
	CallTimeout func(texts, bytes int) time.Duration
	// RestartDelay is the first pause before a plugin that ended is started again; it doubles with each failure in a
	// row, up to RestartDelayMax, and varies by 20 %. Defaults: 100 ms and 30 s.
	RestartDelay, RestartDelayMax time.Duration
	// MaxBadAnswers in a row (wrong count, wrong width, nonsense), each to a text alone, make the host restart the
	// plugin. Default 20.
	MaxBadAnswers int
	// Redact takes secrets out of whatever the plugin says, before anybody sees it. Values of Env whose names are those
	// of keys, tokens or passwords are taken out before, also when it is nil.
	Redact func(string) string
	// Log gets the plugin's output and its life events. Default: nothing is logged.
	Log *slog.Logger
}

// MaxProcesses is the largest number of processes of one plugin.
const MaxProcesses = embed.MaxProcesses

// DefaultCallTimeout allows 30 s, a quarter of a second for each text and a second for each 16 KiB of text: a hundred
// times what a small model needs.
func DefaultCallTimeout(texts, bytes int) time.Duration {
	return CallTimeout(30*time.Second)(texts, bytes)
}

// CallTimeout is DefaultCallTimeout with another time in the place of the 30 s.
func CallTimeout(least time.Duration) func(texts, bytes int) time.Duration {
	return func(texts, bytes int) time.Duration {
		return least + time.Duration(texts)*250*time.Millisecond + time.Duration(bytes/(16<<10))*time.Second
	}
}

// withDefaults returns the options as they are used, or every mistake in them.
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
		if sum != "" && !isSHA256(sum) {
			errs = append(errs, fmt.Errorf("%q is not a SHA-256: want 64 hexadecimal digits", sum))
		}
	}
	for key, value := range o.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			errs = append(errs, fmt.Errorf("environment variable %q cannot be set", key))
		}
	}
	if o.Processes < 0 || o.Processes > MaxProcesses {
		errs = append(errs, fmt.Errorf("%d processes: want 1 to %d", o.Processes, MaxProcesses))
	}
	o.Processes = min(max(o.Processes, 1), MaxProcesses)
	if o.StartTimeout <= 0 {
		o.StartTimeout = time.Minute
	}
	if o.CallTimeout == nil {
		o.CallTimeout = DefaultCallTimeout
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("plugin", o.Name)
	return o, errors.Join(errs...)
}

func isSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

// openVerified opens the plugin's file and checks it and the further files against what they must be. What it returns
// holds the bytes that were hashed, and running it leaves nobody a moment to put others in their place: of a file that
// somebody besides root may write it is a copy.
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
			if !isScript(f) {
				if f, err = sealed(f, info); err != nil {
					return fileError(err)
				}
			}
			if err := checkSum(f, o.Path, o.SHA256); err != nil {
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
	return checkSum(f, path, want)
}

// Sum returns the SHA-256 of a file as Options.SHA256 wants it.
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

// checkSum reads the file to its end and leaves it at its start.
func checkSum(f *os.File, path, want string) error {
	got, err := sumOf(f)
	if err != nil {
		return fileError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fileError(err)
	}
	if got != strings.ToLower(want) {
		return configuration("checksum",
			fmt.Errorf("sha256 of %s is %s, expected %s: put the expected file back, or, if this one is meant, "+
				"pin it (embedsidecar plugins register, or its sha256 in the configuration)", path, got, strings.ToLower(want)))
	}
	return nil
}

// fileError classes a failure to read a file: no descriptors or no memory passes, the rest needs a person.
func fileError(err error) error {
	if isResource(err) {
		return &embed.Error{Class: embed.Resource, Code: "resource", Err: err}
	}
	return configuration("unreadable", err)
}

// isScript reports whether the file begins with "#!". It leaves the file at its start.
func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}
