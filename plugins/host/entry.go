package host

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// entry is a line of a plugin as it is logged. Its line bounds it: what is a list or an object among the fields stays
// text, so that a hostile line grows by its escapes and no more.
type entry struct {
	level  slog.Level
	line   string      // the message of a structured line, or the line
	fields []slog.Attr // of a structured line, by name
}

// parseLine takes a line of slog's or hclog's JSON apart, or of any logger that writes objects with "message". Any
// other line is its own message, at info.
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

// redacted is the entry without secrets, which are looked for in what its JSON means: there a secret may be written
// in other ways.
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

// levelOf reads a level as loggers write it; slog writes those between as "WARN+1" and those below as "DEBUG-4".
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

// valueOf keeps numbers, strings and truth values what they are.
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

// args are what is logged beside the message.
func (e *entry) args() []any {
	args := []any{slog.String("line", e.line)}
	if len(e.fields) > 0 {
		args = append(args, slog.Attr{Key: "fields", Value: slog.GroupValue(e.fields...)})
	}
	return args
}

// String is the form inside of an error: one line, whatever characters the strings of a structured line hold.
func (e entry) String() string {
	if len(e.fields) == 0 && !strings.ContainsRune(e.line, '\n') {
		return e.line
	}
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

// readable makes text of a line.
func readable(raw []byte) string {
	return strings.ToValidUTF8(strings.TrimRight(string(raw), "\r"), "?")
}
