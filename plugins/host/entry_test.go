package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOutput_StructuredLinesBecomeOurs logs lines of common loggers, and lines that imitate the sidecar's.
func TestOutput_StructuredLinesBecomeOurs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want, words string }{
		{"plain {}", `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"plain {}"}`, "plain {}"},
		{
			`{"time":"2026-01-01T00:00:00Z","level":"WARN","msg":"model opened","threads":2,"share":0.5,"warm":true,"dir":"/m","took":null}`,
			`{"level":"WARN","msg":"plugin output","plugin":"toy","line":"model opened","fields":{"dir":"/m","share":0.5,"threads":2,"took":"null","warm":true}}`,
			"model opened dir=/m share=0.5 threads=2 took=null warm=true",
		},
		{
			`{"@timestamp":"2026-01-01","@level":"error","@message":"no\nmodel","@module":"a.b","@caller":"x.go:1"}`,
			`{"level":"ERROR","msg":"plugin output","plugin":"toy","line":"no\nmodel","fields":{"caller":"x.go:1","module":"a.b"}}`,
			"no model caller=x.go:1 module=a.b",
		},
		{
			`{"level":"info","message":"from elsewhere"}`,
			`{"level":"INFO","msg":"plugin output","plugin":"toy","line":"from elsewhere"}`, "from elsewhere",
		},
		{`{"level":"ERROR+2","msg":"x"}`, `{"level":"ERROR","msg":"plugin output","plugin":"toy","line":"x"}`, "x"},
		{`{"level":"DEBUG-4","msg":"far below"}`, "", "far below"},
		{
			`{"level":7,"msg":"x"}`, `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"x","fields":{"level":7}}`,
			"x level=7",
		},
		{`{"level":"debug","msg":"below what is logged"}`, "", "below what is logged"},
		{ // groups, lists and numbers that do not fit stay text
			`{"msg":"x","group":{"msg":"y","a":{"b":1}},"list":[1],"huge":1e999,"long":123456789012345678901}`,
			`{"level":"INFO","msg":"plugin output","plugin":"toy","line":"x","fields":{"group":"{\"msg\":\"y\",\"a\":{\"b\":1}}","huge":"1e999","list":"[1]","long":123456789012345680000}}`,
			`x group={"msg":"y","a":{"b":1}} huge=1e999 list=[1] long=1.2345678901234568e+20`,
		},
		{ // a plugin cannot set the sidecar's own attributes
			`{"msg":"queries are answered","plugin":"onnx","line":"l","fields":{},"":1}`,
			`{"level":"INFO","msg":"plugin output","plugin":"toy","line":"queries are answered","fields":{"":1,"fields":"{}","line":"l","plugin":"onnx"}}`,
			"queries are answered =1 fields={} line=l plugin=onnx",
		},
		{`{"msg":"cut`, `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"{\"msg\":\"cut"}`, `{"msg":"cut`},
		{`{"msg":""}`, `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"{\"msg\":\"\"}"}`, `{"msg":""}`},
		{
			`{"msg":["x"]}`, `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"{\"msg\":[\"x\"]}"}`,
			`{"msg":["x"]}`,
		},
		{`{}`, `{"level":"INFO","msg":"plugin output","plugin":"toy","line":"{}"}`, `{}`},
	} {
		var logged bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{ReplaceAttr: func(groups []string,
			a slog.Attr,
		) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		out := newOutput(log.With("plugin", "toy"), redactor(nil, nil))
		out.line([]byte(c.line))
		if diff := cmp.Diff(c.want, strings.TrimSuffix(logged.String(), "\n")); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", c.line, diff)
		}
		if got := out.Last(); len(got) != 1 || got[0] != c.words {
			t.Errorf("%s: the last words are %q, want %q", c.line, got, c.words)
		}
	}
}

// TestOutput_AHostileLineGrowsByItsEscapesOnly logs the lines that grow most, at the line limit, in both log formats.
func TestOutput_AHostileLineGrowsByItsEscapesOnly(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString(`{"msg":"x"`)
	for i := range 400 {
		fmt.Fprintf(&many, `,"%03d":1`, i)
	}
	const most = 8 * maxLine // a control character becomes \u0001, and quotes around it may be escaped once more
	for _, line := range []string{
		many.String() + "}", strings.Repeat(`{"msg":"x","a":`, maxLine/15), `{"msg":"x","a":` + strings.Repeat("[",
			maxLine/3) + strings.Repeat("]", maxLine/3) + `}`,
		`{"msg":"x","` + strings.Repeat("k", maxLine-100) + `":{"a":1,"b":2}}`, `{"msg":"` + strings.Repeat(`\u0001`,
			maxLine/6-10) + `"}`, strings.Repeat("\x01", maxLine),
	} {
		var logged bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
			logged.Reset()
			out := newOutput(slog.New(handler), redactor(nil, nil))
			out.line([]byte(line)[:min(len(line), maxLine)]) // as the splitter cuts it
			if logged.Len() == 0 || logged.Len() > most || bytes.Count(logged.Bytes(), []byte("\n")) != 1 {
				t.Errorf("%.40s...: %d bytes became %d in %d lines", line, len(line), logged.Len(), bytes.Count(logged.Bytes(),
					[]byte("\n")))
			}
			if got := out.Last(); len(got) != 1 || len(got[0]) > most {
				t.Errorf("%.40s...: %d lines are kept", line, len(got))
			}
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		"plain", `{"@message":1}`, `{"level":"ERROR","msg":"x"}`, `{`, "{\"@level\":[]}", "\xff{",
		`{"msg":"x","a":{"b":[1,"\u0000"]},"n":-0,"f":1e309}`, `{"msg":"a\nb"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsRune(line, '\n') {
			return // where the splitter cuts
		}
		var logged bytes.Buffer
		out := newOutput(slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
			redactor(nil, nil))
		out.line(line)
		if got := out.Last(); len(got) > 1 || len(got) == 1 && strings.ContainsRune(got[0], '\n') {
			t.Errorf("kept: %q", got)
		}
		var record struct{ Msg string }
		if logged.Len() > 0 && (json.Unmarshal(logged.Bytes(), &record) != nil || record.Msg != "plugin output") {
			t.Errorf("logged: %s", logged.Bytes())
		}
	})
}
