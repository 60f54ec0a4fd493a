package conformance

import "time"

// Options say what to test and how long.
type Options struct {
	Path string            // the plugin's file
	Args []string          // follow it on its command line
	Env  map[string]string // its environment, beside what every plugin gets
	// Model is the one to test. Empty: the plugin's only one.
	Model string
	// Only are the ids of the checks to run. Empty: all.
	Only []string
	// Soak is how long memory is watched under load; throughput is measured for a part of it. Default 10 s.
	Soak time.Duration
	// CallTimeout is how long a call may take. Default: host.DefaultCallTimeout.
	CallTimeout func(texts, bytes int) time.Duration
	// Patience is how many times as long as usual the plugin may take to answer, to come back and to end, on a machine
	// that is busy with other things. Default 1.
	Patience int
	// TempDir is for sockets; see host.Options.
	TempDir string
	// Progress is told every check as it ends. May be nil.
	Progress func(Check)
}
