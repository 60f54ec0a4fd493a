package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Bounds on a plugin's output.
const (
	maxLine        = 4 << 10 // the rest of a longer line is dropped
	linesPerSecond = 50      // further lines are counted, not logged
	lastLines      = 20      // kept for errors
	mostLate       = 1 << 20 // the largest pipe without privileges
)

// output logs a plugin's lines and keeps the last ones. It is safe for concurrent use.
type output struct {
	log    *slog.Logger
	redact func(string) string
	now    func() time.Time

	mu      sync.Mutex
	last    [][]byte  // lines, oldest first; their memory is reused
	second  time.Time // start of the current one-second window
	lines   int       // lines in this window
	dropped int       // not logged since the last report
}

func newOutput(log *slog.Logger, redact func(string) string) *output {
	return &output{log: log, redact: redact, now: time.Now}
}

// Last returns the last lines, oldest first.
func (o *output) Last() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return lists.Map(o.last, func(raw []byte) string { return parseLine(raw).redacted(o.redact).String() })
}

// forget drops the last lines before the program's next run.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = nil
}

// line takes one line without its end.
func (o *output) line(raw []byte) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var room []byte
	if len(o.last) == lastLines {
		room = o.last[0]
		o.last = append(o.last[:0], o.last[1:]...)
	}
	o.last = append(o.last, append(room[:0], raw...))
	if now := o.now(); now.Sub(o.second) >= time.Second {
		o.second, o.lines = now, 0
		o.reportDroppedLocked()
	}
	if o.lines++; o.lines > linesPerSecond {
		o.dropped++ // and not parsed: a flood must cost no more than reading it
		return
	}
	e := parseLine(raw).redacted(o.redact)
	// The message is fixed: a plugin must not be able to imitate a log line of the sidecar.
	switch args := e.args(); {
	case e.level >= slog.LevelError:
		o.log.Error("plugin output", args...)
	case e.level >= slog.LevelWarn:
		o.log.Warn("plugin output", args...)
	case e.level >= slog.LevelInfo:
		o.log.Info("plugin output", args...)
	default:
		o.log.Debug("plugin output", args...)
	}
}

// ended logs the pending count of dropped lines when the process has ended.
func (o *output) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reportDroppedLocked()
}

func (o *output) reportDroppedLocked() {
	if o.dropped > 0 {
		o.log.Warn("plugin output dropped", "lines", o.dropped)
		o.dropped = 0
	}
}

// lastWords reads a program's output from a pipe. After the read deadline, which expires soon after the program's end,
// it still returns what is already in the pipe: the reader may be behind.
type lastWords struct {
	pipe *os.File
	late int // bytes read after the deadline
}

// Read implements io.Reader.
func (w *lastWords) Read(b []byte) (int, error) {
	n, err := w.pipe.Read(b)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || w.late >= mostLate {
		return n, err
	}
	raw, rawErr := w.pipe.SyscallConn()
	if rawErr != nil {
		return 0, err
	}
	// Not raw.Read, which obeys the deadline. The pipe is non-blocking, so this does not wait.
	if raw.Control(func(fd uintptr) { n, rawErr = syscall.Read(int(fd), b) }) != nil || rawErr != nil || n <= 0 {
		return 0, err
	}
	w.late += n
	return n, nil
}

// splitter splits a stream into lines for an output. It is not safe for concurrent use.
type splitter struct {
	to      *output
	partial []byte
	skip    bool // discarding the rest of a line that was too long
}

// Write implements io.Writer and never fails.
func (s *splitter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if !s.skip {
			s.partial = append(s.partial, part[:min(len(part), maxLine-len(s.partial))]...)
			s.skip = len(s.partial) == maxLine
		}
		if ended {
			s.flush()
		}
	}
	return len(p), nil
}

// flush ends the current line.
func (s *splitter) flush() {
	s.to.line(s.partial)
	s.partial, s.skip = s.partial[:0], false
}

// entry is a line of a plugin as it is logged. Lists and objects among its fields stay text, so that a hostile line
// grows only by its escapes.
type entry struct {
	level  slog.Level
	line   string      // the message of a structured line, or the line
	fields []slog.Attr // of a structured line, by name
}

// parseLine parses a JSON line of slog, hclog or any logger that writes objects with "message". Any other line is its
// own message, at level info.
func parseLine(raw []byte) entry {
	text := readable(raw)
	if !strings.HasPrefix(text, "{") {
		return entry{line: text}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return entry{line: text}
	}
	take := func(names ...string) (value string) {
		for _, name := range names {
			if json.Unmarshal(object[name], &value) == nil && value != "" {
				delete(object, name)
				return value
			}
		}
		return ""
	}
	var e entry
	if e.line = take("@message", slog.MessageKey, "message"); e.line == "" {
		return entry{line: text}
	}
	e.level = levelOf(take("@level", slog.LevelKey))
	take("@timestamp", slog.TimeKey, "timestamp") // the record has its own
	for _, name := range slices.Sorted(maps.Keys(object)) {
		e.fields = append(e.fields, slog.Attr{Key: strings.TrimPrefix(name, "@"), Value: valueOf(object[name])})
	}
	return e
}

// redacted removes secrets from the decoded strings of the entry, because JSON may escape them.
func (e entry) redacted(redact func(string) string) entry {
	e.line = redact(e.line)
	for i, f := range e.fields {
		e.fields[i].Key = redact(f.Key)
		if f.Value.Kind() == slog.KindString {
			e.fields[i].Value = slog.StringValue(redact(f.Value.String()))
		}
	}
	return e
}

// levelOf parses a level. slog writes levels with an offset, as "WARN+1" and "DEBUG-4".
func levelOf(name string) slog.Level {
	name = strings.ToLower(name)
	if offset := strings.IndexAny(name, "+-"); offset >= 0 {
		name = name[:offset]
	}
	switch name {
	case "error", "fatal", "panic", "critical":
		return slog.LevelError
	case "warn", "warning":
		return slog.LevelWarn
	case "debug", "trace":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// valueOf keeps the type of numbers, strings and booleans.
func valueOf(raw json.RawMessage) slog.Value {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return slog.StringValue(string(raw))
	}
	switch v := value.(type) {
	case string:
		return slog.StringValue(v)
	case bool:
		return slog.BoolValue(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return slog.Int64Value(n)
		}
		if x, err := strconv.ParseFloat(v.String(), 64); err == nil {
			return slog.Float64Value(x)
		}
	}
	return slog.StringValue(string(raw))
}

// args are the attributes of the log record.
func (e *entry) args() []any {
	args := []any{slog.String("line", e.line)}
	if len(e.fields) > 0 {
		args = append(args, slog.Attr{Key: "fields", Value: slog.GroupValue(e.fields...)})
	}
	return args
}

// String is the form for errors: always a single line of printable characters, because errors are stored, and
// PostgreSQL stores no NUL.
func (e entry) String() string {
	words := []string{e.line}
	for _, f := range e.fields {
		words = append(words, f.String())
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.Join(words, " "))
}

// readable converts a line to valid UTF-8.
func readable(raw []byte) string {
	return strings.ToValidUTF8(strings.TrimRight(string(raw), "\r"), "?")
}
