// Package logging makes the program's only logger, which redacts secrets.
package logging

import (
	"bytes"
	"io"
	"log/slog"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Options configure a logger.
type Options struct {
	Format   string // text or json; auto: text only on a terminal
	Level    slog.Level
	Terminal bool
	Redact   func(string) string // removes secrets from a text
	Words    func(error) string  // the text of an error, without values of rows; nil: all of it
	Patience time.Duration       // how long to wait for a reader that blocks; 0: without limit
}

// New makes a logger. It redacts everything, including the message, because errors of drivers and servers may contain
// anything.
func New(to io.Writer, o Options) *slog.Logger {
	if o.Patience > 0 {
		to = &patient{to: to, limit: o.Patience, lost: func(lines int) []byte {
			var b bytes.Buffer
			slog.New(handler(&b, o)).Warn("log lines were dropped, because the log was not read", "lines", lines)
			return b.Bytes()
		}}
	}
	return slog.New(handler(to, o))
}

func handler(to io.Writer, o Options) slog.Handler {
	options := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		return slog.Attr{Key: a.Key, Value: o.redacted(a.Value)}
	}}
	if o.Format == "json" || o.Format == "auto" && !o.Terminal {
		return slog.NewJSONHandler(to, options)
	}
	return slog.NewTextHandler(to, options)
}

func (o *Options) redacted(v slog.Value) slog.Value {
	redact := o.Redact
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(redact(v.String()))
	case slog.KindDuration:
		// JSON would show nanoseconds; the text has its unit.
		return slog.StringValue(v.Duration().String())
	case slog.KindAny:
		if err, ok := v.Any().(error); ok && err != nil {
			text := err.Error()
			if o.Words != nil {
				text = o.Words(err)
			}
			return slog.StringValue(redact(text))
		}
		if list, ok := v.Any().([]string); ok {
			return slog.AnyValue(lists.Map(list, redact))
		}
		if s, ok := v.Any().(interface{ String() string }); ok {
			return slog.StringValue(redact(s.String()))
		}
	case slog.KindBool, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindGroup,
		slog.KindLogValuer:
	}
	return v
}
