package host

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// MaxBadAnswers in a row (wrong count, wrong width, nonsense) make the host restart the plugin. Default 20.
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
	if o.Name == "" {
		o.Name = strings.TrimPrefix(filepath.Base(o.Path), "embedsidecar-")
	}
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
