package host

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
)

// StartError says why a plugin could not be started. An *embed.Error wraps it.
type StartError struct {
	Plugin string   // its name
	Path   string   // its file
	Stderr []string // its last lines of output, at most 20
	Err    error
}

func (e *StartError) Error() string {
	msg := fmt.Sprintf("start plugin %q: %s", e.Plugin, e.Err)
	if len(e.Stderr) > 0 {
		msg += "; its last output:\n  " + strings.Join(e.Stderr, "\n  ")
	}
	return msg
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// errClosed is the cause of errors after Close.
var errClosed = errors.New("the plugin has been closed")

// The whole-call errors of this package.
func configuration(code string, err error) *embed.Error {
	return &embed.Error{Class: embed.Configuration, Code: code, Err: err}
}

func unavailable(after time.Duration, err error) *embed.Error {
	return &embed.Error{Class: embed.Transient, Code: "unavailable", RetryAfter: after, Err: err}
}

func badAnswer(code, format string, args ...any) *embed.Error {
	return &embed.Error{Class: embed.Data, Code: code, Err: fmt.Errorf(format, args...)}
}

// isResource reports whether a system error means that a resource is exhausted.
func isResource(err error) bool {
	exhausted := []error{
		syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT,
	}
	return slices.ContainsFunc(exhausted, func(e error) bool { return errors.Is(err, e) })
}

// fromStatus converts a plugin's status error to the class that the contract assigns to its code.
func fromStatus(err error, texts []string) *embed.Error {
	st := status.Convert(err)
	out := &embed.Error{RetryAfter: retryDelay(st), Err: fmt.Errorf("the plugin answered %s: %s", st.Code(),
		withoutTexts(st.Message(), texts))}
	switch st.Code() {
	case codes.FailedPrecondition, codes.NotFound, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		out.Class, out.Code = embed.Configuration, "misconfigured"
	case codes.InvalidArgument, codes.OutOfRange:
		out.Class, out.Code = embed.Data, "invalid"
	case codes.Internal, codes.DataLoss:
		out.Class, out.Code = embed.Data, "internal"
	case codes.ResourceExhausted:
		out.Class, out.Code = embed.Resource, "resource"
		// gRPC uses the same code for a message above either side's size limit. Fewer texts make a smaller message. A
		// text whose message is always too large must not be retried forever.
		if TooLargeMessage(st.Message()) {
			out.Class, out.Code = embed.Data, "message_size"
		}
	case codes.DeadlineExceeded:
		out.Class, out.Code = embed.Transient, "deadline"
	case codes.OK, codes.Canceled, codes.Unknown, codes.AlreadyExists, codes.Aborted, codes.Unavailable:
		out.Class, out.Code = embed.Transient, "unavailable"
	default:
		out.Class, out.Code = embed.Transient, "unknown"
	}
	return out
}

// tooLargeMessage matches what gRPC's implementations say about a message above a size limit: those for Go, for C++ and
// the languages that use it (Python, Ruby, PHP) and for JavaScript; for Java; for .NET.
var tooLargeMessage = regexp.MustCompile(`(?i)\b(received|sent|send) message .*larger than max|` +
	`grpc message exceeds maximum size|message exceeds the maximum configured message size`)

// TooLargeMessage reports whether the message of a status RESOURCE_EXHAUSTED says that a message was above a limit of
// gRPC's.
func TooLargeMessage(message string) bool { return tooLargeMessage.MatchString(message) }

// retryDelay returns the retry delay of a status, at most an hour.
func retryDelay(st *status.Status) time.Duration {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), time.Hour)
		}
	}
	return 0
}

// maxMessage is how many bytes of a plugin's message are kept.
const maxMessage = 300

// withoutTexts makes a plugin's message safe to log and store: short and printable. It withholds a message that quotes
// a piece of a text, in whatever notation.
func withoutTexts(message string, texts []string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage] + "..."
	}
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "?"))
	if quotes(message, texts) {
		return "(message withheld: it quotes the text)"
	}
	return message
}

// quotes reports whether a message shares a run of letters and digits with one of the texts.
func quotes(message string, texts []string) bool {
	const run, shortest = 12, 4 // shorter runs occur by chance
	letters := lettersOf(message)
	pieces := map[string]bool{}
	for i := 0; i+run <= len(letters); i++ {
		pieces[string(letters[i:i+run])] = true
	}
	for _, text := range texts {
		t := lettersOf(text)
		if len(t) < run && len(t) >= shortest && strings.Contains(string(letters), string(t)) {
			return true
		}
		for i := 0; i+run <= len(t); i++ {
			if pieces[string(t[i:i+run])] {
				return true
			}
		}
	}
	return false
}

// escapes matches the escape sequences of common languages and protocols.
var escapes = regexp.MustCompile(`((\\+x|%)[0-9a-fA-F]{2})+|\\+u(\{[0-9a-fA-F]{1,6}\}|[0-9a-fA-F]{4})|\\+[nrtbfv]`)

// lettersOf returns the letters and digits of a text in lower case, with escapes decoded.
func lettersOf(text string) []rune {
	text = escapes.ReplaceAllStringFunc(text, func(e string) string {
		if e = strings.TrimLeft(e, `\`); e[0] == 'u' {
			code, _ := strconv.ParseUint(strings.Trim(e[1:], "{}"), 16, 32)
			return string(rune(code))
		}
		raw, err := hex.DecodeString(strings.NewReplacer(`\`, "", "x", "", "%", "").Replace(e))
		switch {
		case err != nil: // a newline escape or the like
			return " "
		case utf8.Valid(raw):
			return string(raw)
		}
		runes := make([]rune, len(raw)) // Latin 1
		for i, b := range raw {
			runes[i] = rune(b)
		}
		return string(runes)
	})
	var letters []rune
	for _, r := range strings.ToLower(text) {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			letters = append(letters, r)
		}
	}
	return letters
}
