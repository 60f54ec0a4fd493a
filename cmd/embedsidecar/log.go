package main

import (
	"io"
	"log/slog"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

// newLogger makes the program's only logger. Whatever is logged, the message included, goes through the redactor:
// drivers and servers write the messages of their errors, and we do not know what they put into them.
func newLogger(w io.Writer, format string, level slog.Level, terminal bool, redact *config.Redactor) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		return slog.Attr{Key: a.Key, Value: redacted(a.Value, redact)}
	}}
	if format == "json" || format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func redacted(v slog.Value, redact *config.Redactor) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(redact.Text(v.String()))
	case slog.KindDuration:
		// JSON would show nanoseconds; the text says its unit.
		return slog.StringValue(v.Duration().String())
	case slog.KindAny:
		if err, ok := v.Any().(error); ok && err != nil {
			return slog.StringValue(redact.Text(err.Error()))
		}
		if list, ok := v.Any().([]string); ok {
			clean := make([]string, len(list))
			for i, s := range list {
				clean[i] = redact.Text(s)
			}
			return slog.AnyValue(clean)
		}
		if s, ok := v.Any().(interface{ String() string }); ok {
			return slog.StringValue(redact.Text(s.String()))
		}
	case slog.KindBool, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindGroup,
		slog.KindLogValuer:
	}
	return v
}
