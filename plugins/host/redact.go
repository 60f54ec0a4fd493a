package host

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
)

// What a plugin says is a stranger's: libraries put keys into their errors, and those into logs, answers and tables.
// So secrets are taken out where its words come in, and nobody behind has to think of it: its lines, its handshake,
// and every string of its answers.

// leastSecret is the length from which on a variable's value is taken for a secret; shorter ones are words of other
// messages, too.
const leastSecret = 8

// redactor masks the values of variables that a plugin's environment has for secrets, and what more does besides.
func redactor(env map[string]string, more func(string) string) func(string) string {
	var secrets []string
	for name, value := range env {
		if len(value) >= leastSecret && secret.Variable(name) {
			secrets = append(secrets, writtenForms(value)...)
		}
	}
	// one that begins with another is masked whole
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return func(s string) string {
		for _, known := range secrets {
			s = strings.ReplaceAll(s, known, secret.Mask)
		}
		if more != nil {
			s = more(s)
		}
		return s
	}
}

// writtenForms are the ways in which a secret may stand in a message: as it is, quoted, in JSON, and in a URL.
func writtenForms(secret string) []string {
	forms := []string{
		secret, inside(strconv.Quote(secret)), inside(strconv.QuoteToASCII(secret)), url.QueryEscape(secret),
		url.PathEscape(secret),
	}
	if encoded, err := json.Marshal(secret); err == nil {
		forms = append(forms, inside(string(encoded)))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// inside is a text without its quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// redacting is an interceptor that takes secrets out of answers and of errors.
func redacting(redact func(string) string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		return redactReply(reply, invoke(ctx, method, request, reply, conn, options...), redact)
	}
}

func redactReply(reply any, err error, redact func(string) string) error {
	if err != nil {
		said := status.Convert(err).Proto()
		said.Message = redact(said.GetMessage())
		return status.ErrorProto(said)
	}
	if m, ok := reply.(proto.Message); ok {
		redactMessage(m.ProtoReflect(), redact)
	}
	return nil
}

// redactMessage redacts every string of a message, and of those in it.
func redactMessage(m protoreflect.Message, redact func(string) string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
		case field.IsList():
			list := value.List()
			for i := range list.Len() {
				if field.Kind() == protoreflect.StringKind {
					list.Set(i, protoreflect.ValueOfString(redact(list.Get(i).String())))
				} else if field.Kind() == protoreflect.MessageKind {
					redactMessage(list.Get(i).Message(), redact)
				}
			}
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(redact(value.String())))
		case field.Kind() == protoreflect.MessageKind:
			redactMessage(value.Message(), redact)
		}
		return true
	})
}
